"""Measures other queues in the same run as delayd. Each adds tasks that are all due in the same
second, and then takes each of them once."""

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

BULLMQ = "5"
HERE = Path(__file__).resolve().parent
CONTENT = b'{"sn":"bench.receiver","url":"/bench","pad":"' + b"x" * 153 + b'"}'


class Absent(Exception):
    """A peer that cannot be measured on this machine, and why."""


def raw_redis(port, tasks):
    """Redis alone: `HSET` and `ZADD` of a task, one after the other, over one connection."""
    def per_s(batch, *command):
        ask = ["redis-benchmark", "-p", port, "-c", 1, "-P", batch, "-n", tasks, "-r", 10**12]
        ran = subprocess.run(
            [*map(str, ask), "--csv", *command], capture_output=True, text=True, timeout=300)
        if ran.returncode != 0:
            raise Absent((ran.stderr.strip().splitlines() or ["redis-benchmark failed"])[-1])
        return float(ran.stdout.strip().splitlines()[-1].split(",")[1].strip('"'))

    figures = {}
    for batch in (1, 16, 64, 256):
        body = per_s(batch, "HSET", "bodies", "__rand_int__", "x" * 200)
        due = per_s(batch, "ZADD", "schedule", "1795234567000", "__rand_int__")
        figures[f"batch_{batch}_tasks_per_s"] = 1 / (1 / body + 1 / due)
    return figures


def bullmq(redis, tasks):
    """BullMQ, a library for Node: one process adds and works, on the given Redis."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parents[1] / "target"))
    place = target / "bullmq"
    if not shutil.which("npm"):
        raise Absent("npm is not installed")
    if not (place / "node_modules" / "bullmq").exists():
        place.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--no-audit", "--no-fund"]
        command += ["--prefix", str(place), f"bullmq@{BULLMQ}"]
        installed = subprocess.run(command, capture_output=True, text=True)
        if installed.returncode != 0:
            raise Absent("npm could not install bullmq")
    shutil.copy(HERE / "bullmq.mjs", place / "bullmq.mjs")
    command = ["node", str(place / "bullmq.mjs"), redis, str(tasks)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if ran.returncode != 0:
        raise Absent((ran.stderr.strip().splitlines() or ["it failed"])[-1])
    return json.loads(ran.stdout)


def beanstalkd(tasks):
    """beanstalkd over its own protocol, pipelined, with its log on disk (synced every 50 ms, its
    default)."""
    if not shutil.which("beanstalkd"):
        raise Absent("beanstalkd is not installed")
    with tempfile.TemporaryDirectory(prefix="delayd-bench-beanstalkd-") as folder:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = subprocess.Popen(["beanstalkd", "-l", "127.0.0.1", "-p", str(port), "-b", folder])
        try:
            return _beanstalkd(port, tasks)
        finally:
            server.kill()
            server.wait()


def _beanstalkd(port, tasks):
    stream = _connect(port)
    # Its delays are whole seconds from the put. The tasks put in one second fall due in one second,
    # and all puts have time until the first is due.
    begin = int(time.time()) + 4
    due, sent, began = {}, 0, time.monotonic()
    while sent < tasks:
        some = min(500, tasks - sent)
        delay = begin - int(time.time())
        put = b"put 1 %d 60 %d\r\n%s\r\n" % (delay, len(CONTENT), CONTENT)
        # None of these tasks can be due before this moment.
        at = time.time() + delay
        stream.sendall(put * some)
        for _ in range(some):
            due[int(stream.lines.readline().split()[1])] = at
        sent += some
    add_s = time.monotonic() - began
    got, first, last, earliest = set(), None, None, None
    while len(got) < tasks:
        some = min(200, tasks - len(got))
        stream.sendall(b"reserve\r\n" * some)
        ids = []
        for _ in range(some):
            _, number, length = stream.lines.readline().split()
            stream.lines.read(int(length) + 2)
            now, number = time.time(), int(number)
            first, last = first or now, now
            late = now - due[number]
            earliest = late if earliest is None else min(earliest, late)
            ids.append(number)
        stream.sendall(b"".join(b"delete %d\r\n" % number for number in ids))
        for number in ids:
            assert stream.lines.readline() == b"DELETED\r\n" and number not in got
            got.add(number)
    return {
        "adds_per_s": tasks / add_s,
        "delivered_per_s": tasks / (last - first),
        "earliest_ms": earliest * 1000,
    }


class _Stream:
    def __init__(self, connection):
        self.sendall = connection.sendall
        self.lines = connection.makefile("rb")


def _connect(port):
    deadline = time.monotonic() + 10
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port), 30)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return _Stream(connection)
        except OSError:
            if time.monotonic() > deadline:
                raise Absent("beanstalkd does not listen") from None
            time.sleep(0.02)

#!/usr/bin/env python3
"""Measures what ten viewers of the live stream cost delayd, with the embedded store in TMPDIR.

Without --instructions: the processor time with viewers and without, in alternating periods, first
idle and then while tasks are added and delivered at a rate; and the bytes that each viewer gets.

With --instructions: user instructions by `valgrind --tool=callgrind`, for each add and for each
second with viewers. They are nearly the same on a busy machine.
"""

import argparse
import contextlib
import ctypes
import errno
import json
import re
import selectors
import signal
import socket
import statistics
import struct
import subprocess
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VIEWERS = 10
PERIOD_S = 5
SERVICE = "viewed"
# With --instructions: the connections that add at the same time, their adds, and their pace.
CONNECTIONS, ROUNDS, ROUND_S = 16, 250, 0.1


def request(path, body):
    body = json.dumps(body)
    lines = [f"POST {path} HTTP/1.1", "host: 127.0.0.1", f"content-length: {len(body)}", "", body]
    return "\r\n".join(lines).encode()


def without_auxv():
    """Lets this process fail to get its auxiliary vector from the kernel.

    The vector names the vDSO, which valgrind removes, and a library of delayd would read it. The
    library then reads /proc/self/auxv, which valgrind supplies. x86-64 only.
    """
    load, is_equal, give = 0x20, 0x15, 0x06
    prctl, get_auxv, allow, fail = 157, 0x41555856, 0x7FFF0000, 0x00050000 | errno.EINVAL
    code = [(load, 0, 0, 0), (is_equal, 0, 2, prctl), (load, 0, 0, 16),
            (is_equal, 1, 0, get_auxv), (give, 0, 0, allow), (give, 0, 0, fail)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in code))
    program = struct.pack("HxxxxxxQ", 6, ctypes.addressof(code))
    libc, no_new_privileges, seccomp, as_filter = ctypes.CDLL(None), 38, 22, 2
    if libc.prctl(no_new_privileges, 1, 0, 0, 0) or libc.prctl(seccomp, as_filter, program):
        raise OSError("no seccomp")


class Delayd:
    """A running service. It and its folder are removed after the block."""

    def __init__(self, program, under=()):
        self.command = [*under, str(program)]

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="delayd-viewers-")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.receiver = "{}:{}".format(*free.getsockname())
        words = [
            'http.bind="127.0.0.1:0"', f'store.embedded.path="{self.folder.name}/delayd.db"',
            f'services."{SERVICE}".endpoints=["http://{self.receiver}"]',
        ]
        sets = [word for setting in words for word in ("--set", setting)]
        self.process = subprocess.Popen(
            [*self.command, *sets, "serve"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True,
            preexec_fn=without_auxv if len(self.command) > 1 else None,
        )
        for line in self.process.stderr:
            if found := re.search(r"listens on http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                threading.Thread(target=self.process.stderr.read, daemon=True).start()
                return self
        raise SystemExit("delayd does not start")

    def cpu_s(self):
        """The processor time of the process, user and system, in nanosecond resolution."""
        # The clock that clock_getcpuclockid(3) returns. It includes threads that have ended.
        return time.clock_gettime(~self.process.pid << 3 | 2)

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port))

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        self.folder.cleanup()


class Viewers:
    """Open streams, and the bytes that each of them has received."""

    def __init__(self, delayd):
        self.selector = selectors.DefaultSelector()
        self.received = {}
        for _ in range(VIEWERS):
            stream = delayd.connect()
            stream.sendall(request("/delay/live", {}))
            self.selector.register(stream, selectors.EVENT_READ)
            self.received[stream] = 0

    def read(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            for key, _ in self.selector.select(left):
                self.received[key.fileobj] += len(key.fileobj.recv(1 << 16))

    def most(self):
        """The bytes of the viewer that received most."""
        return max(self.received.values())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for stream in self.received:
            stream.close()


def period(delayd, has_viewers):
    """The percentage of a core in a period, and the bytes a second of a viewer."""
    with Viewers(delayd) if has_viewers else contextlib.nullcontext() as viewers:
        # The first event is sent at once, whatever the second.
        time.sleep(1) if viewers is None else viewers.read(1)
        before, bytes_before = delayd.cpu_s(), viewers.most() if viewers else 0
        began = time.monotonic()
        time.sleep(PERIOD_S) if viewers is None else viewers.read(PERIOD_S)
        seconds = time.monotonic() - began
        received = (viewers.most() - bytes_before) / seconds if viewers else 0
        return (delayd.cpu_s() - before) / seconds * 100, received


def pairs(delayd, count, name):
    costs, without, received = [], [], 0
    for pair in range(count):
        # The order alternates, so that a drift favours neither.
        order = [True, False] if pair % 2 else [False, True]
        found = {has_viewers: period(delayd, has_viewers) for has_viewers in order}
        costs.append(found[True][0] - found[False][0])
        without.append(found[False][0])
        received = max(received, found[True][1])
    shown = "; ".join(f"{cost:+.2f}" for cost in costs)
    error = statistics.stdev(costs) / count**0.5 if count > 1 else 0
    print(f"{name}: {statistics.median(without):.2f} % of a core without viewers; "
          f"{VIEWERS} viewers add a median of {statistics.median(costs):.2f}, a mean of "
          f"{statistics.mean(costs):.2f} ± {error:.2f} ({shown}); "
          f"{received:.0f} bytes a second each at most", flush=True)


def processor(options):
    with Delayd(options.program) as delayd:
        time.sleep(3)
        pairs(delayd, options.pairs, "idle")
        seconds = 2 * options.pairs * (PERIOD_S + 1) + 5
        load = subprocess.Popen(
            [options.program, "bench", "lateness", "--rate", str(options.rate),
             "--for", f"{seconds}s", "--server", f"http://127.0.0.1:{delayd.port}",
             "--service", SERVICE, "--receiver", delayd.receiver],
            stdout=subprocess.DEVNULL,
        )
        time.sleep(3)
        pairs(delayd, options.pairs, f"{options.rate} tasks a second")
        if load.wait() != 0:
            raise SystemExit("the load failed")


def add_all(delayd):
    """Adds at a pace over several connections, so that adds share transactions."""
    connections = [delayd.connect() for _ in range(CONNECTIONS)]
    task = {"topic": "orders", "delay": "1h", "content": {"sn": SERVICE, "url": "/", "n": 1}}
    add = request("/delay/task/add", task)
    began = time.monotonic()
    for done in range(ROUNDS):
        time.sleep(max(0, began + done * ROUND_S - time.monotonic()))
        for connection in connections:
            connection.sendall(add)
        for connection in connections:
            if not connection.recv(1 << 16).startswith(b"HTTP/1.1 200"):
                raise SystemExit("an add failed")


def counted(program, adds, has_viewers):
    """The instructions of a life of the service, which has the same length each time."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder, "counts")
        under = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={found}"]
        with Delayd(program, under) as delayd:
            with Viewers(delayd) if has_viewers else contextlib.nullcontext() as viewers:
                began, seconds = time.monotonic(), ROUNDS * ROUND_S + 3
                reads = threading.Thread(target=viewers.read if viewers else time.sleep,
                                         args=[seconds])
                reads.start()
                if adds:
                    add_all(delayd)
                if time.monotonic() - began > seconds:
                    raise SystemExit("the machine is too slow for this pace")
                reads.join()
        return int(re.search(r"^(?:summary|totals): (\d+)", found.read_text(), re.M)[1])


def instructions(options):
    adds, seconds = CONNECTIONS * ROUNDS, ROUNDS * ROUND_S + 3
    count = {key: counted(options.program, *key)
             for key in [(False, False), (False, True), (True, False), (True, True)]}
    add = (count[True, False] - count[False, False]) / adds
    event = (count[False, True] - count[False, False]) / seconds
    beside = (count[True, True] - count[True, False]) / seconds
    print(f"instructions: {add:,.0f} for each add; {VIEWERS} viewers add {event:,.0f} a second "
          f"while idle, and {beside:,.0f} beside {adds / seconds:.0f} adds a second; at "
          f"{options.rate} adds a second that is {beside / options.rate:,.0f} for each add, "
          f"{beside / options.rate / add:.2%}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / "target/release/delayd")
    parser.add_argument("--pairs", type=int, default=8, help="pairs of periods (default 8)")
    parser.add_argument("--rate", type=int, default=3000, help="tasks a second (default 3000)")
    parser.add_argument("--instructions", action="store_true")
    options = parser.parse_args()
    instructions(options) if options.instructions else processor(options)


if __name__ == "__main__":
    main()

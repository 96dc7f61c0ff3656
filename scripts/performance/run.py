"""Runs the scenarios of `delayd-bench` in groups, each on both stores, and measures the parts and
peers beside them. See scripts/bench."""

import argparse
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import disk as disks
import page
import peers
import stalls

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "dist" / "delayd"
BENCH = PROGRAM.with_name("delayd-bench")
STORES = ["embedded", "redis"]
LONGEST_S = 1200


class Redis:
    """An empty server that syncs every second. It and its folder are removed after the block."""

    def __init__(self, environment=os.environ):
        self.environment = environment

    def __enter__(self):
        self.folder = tempfile.mkdtemp("", "delayd-bench-redis-", self.environment.get("TMPDIR"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        options = f"--port {self.port} --bind 127.0.0.1 --appendonly yes --appendfsync everysec"
        self.process = subprocess.Popen(
            ["redis-server", *options.split(), "--save", ""],
            cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True, env=self.environment,
        )
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                time.sleep(0.02)
        raise SystemExit("redis-server does not listen")

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}/0"

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Run:
    """The results so far: a list per key, such as `add 64 redis`."""

    def __init__(self, short):
        self.short = short
        self.group = None
        self.results = {}
        self.defects = []
        # What could not be measured on this machine, and why.
        self.absent = {}

    def size(self, long, short):
        return short if self.short else long

    def bench(self, key, words, store=None, place=None):
        """Runs a scenario, on a Redis of its own if that is the store. The files are in the place;
        if their writes are counted, the figures have them."""
        environment = os.environ
        if place:
            place.begin()
            environment = place.environment
        if store == "redis":
            with Redis(environment) as redis:
                arguments = ["--store", "redis", "--redis", redis.url]
                return self._run(key, words, arguments, environment, place)
        return self._run(key, words, [], environment, place)

    def both(self, key, words, place=None):
        """Runs a scenario on both stores."""
        for store in STORES:
            self.bench(f"{key} {store}", words, store, place)

    def _run(self, key, words, store, environment, place):
        print(f"{key:<28}", end="", flush=True)
        command = [str(BENCH), *words.split(), *store, "--json"]
        bench = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )
        try:
            output, error = bench.communicate(timeout=LONGEST_S)
        except BaseException:
            # The bench then ends its service and removes its data.
            bench.send_signal(signal.SIGINT)
            bench.communicate()
            raise
        if bench.returncode != 0:
            lines = error.strip().splitlines()
            said = lines[-1] if lines else f"ended with {bench.returncode}"
            self.defects.append(f"{key}: {said}")
            print(f"  FAILED: {said}", flush=True)
            return None
        told = json.loads(output)
        kind = " --store redis" if store else ""
        told["command"] = f"delayd-bench {words}{kind}"
        if place and place.counts:
            told["figures"] |= place.written(told["figures"]["tasks"])
        self._keep(key, told)
        return told

    def _keep(self, key, told):
        told |= {"group": self.group, "at": time.strftime("%Y-%m-%d %H:%M", time.gmtime())}
        self.results.setdefault(key, []).append(told)
        print("  " + page.brief(told["figures"]), flush=True)

    def lacks(self, key, why):
        self.absent[key] = str(why)
        print(f"  not measured: {why}", flush=True)

    def peer(self, name, measure):
        print(f"{name:<28}", end="", flush=True)
        try:
            figures = measure()
        except peers.Absent as why:
            self.lacks(name, why)
            return
        self._keep(name, {"figures": figures})


def add(run):
    """In rounds, so that each figure is measured within seconds of the bare server's."""
    span = run.size("5s", "500ms")
    for _ in range(run.size(5, 1)):
        run.bench("bare 64", f"bare --for {span}")
        run.both("add 64", f"add --for {span}")
        run.bench("bare 1", f"bare --connections 1 --for {span}")
        run.both("add 1", f"add --connections 1 --for {span}")


def parts(run):
    span = run.size("3s", "200ms")
    with Redis() as redis:
        run.peer("raw redis", lambda: peers.raw_redis(redis.port, run.size(200_000, 20_000)))
    run.bench("calls", f"calls --connections 256 --for {span}")
    run.peer("stalls", lambda: stalls.measure(run.size(10, 0.2)))


def batch(run):
    for _ in range(run.size(3, 1)):
        words = f"add --batch 500 --connections 4 --for {run.size('3s', '500ms')}"
        run.both("batch", words)


def burst(run):
    """More rounds than elsewhere: a burst is short, so other work of the machine counts."""
    for _ in range(run.size(7, 1)):
        run.both("burst", f"burst --tasks {run.size(20000, 2000)}")


def lateness(run):
    for rate in [1000, 3500]:
        run.both(f"lateness {rate}", f"lateness --rate {rate} --for {run.size('10s', '1s')}")


def pull(run):
    run.both("pull", f"pull --tasks {run.size(50000, 1000)}")


def idle(run):
    topics, span = run.size(1000, 50), run.size("20s", "1s")
    run.bench("idle embedded", f"idle --topics {topics} --for {span}")
    run.bench("idle redis", f"idle --topics {topics} --for {span} --instances 3", "redis")
    run.both("rest", "idle --topics 1 --for 2s")


def flood(run):
    run.both("flood", f"flood --tasks {run.size(1000000, 5000)}")


def pending(run):
    span, rate = run.size("10s", "500ms"), run.size(1000, 200)
    for tasks in run.size([10_000, 100_000, 1_000_000, 10_000_000], [1_000, 10_000]):
        run.both(f"pending {tasks}", f"pending --tasks {tasks} --for {span} --rate {rate}")


def topics(run):
    """In rounds for the sizes whose adds are compared."""
    tasks, span = run.size(20000, 1000), run.size("3s", "500ms")
    rounds = run.size([[1, 5_000]] * 3 + [[10, 100, 1_000, 10_000]], [[1, 10]])
    for count in (count for sizes in rounds for count in sizes):
        run.both(f"topics {count}", f"add --topics {count} --for {span}")
        run.both(f"topics-burst {count}", f"burst --topics {count} --tasks {tasks}")


def far(run):
    """The same load with Redis near and far away, in rounds."""
    span, span_of_adds = run.size("10s", "1s"), run.size("5s", "500ms")
    for _ in range(run.size(3, 1)):
        for trip in [0, *page.ROUND_TRIPS]:
            way = f"--redis-round-trip {trip}ms"
            run.bench(f"far {trip} add", f"add --for {span_of_adds} {way}", "redis")
            run.bench(f"far {trip} burst", f"burst --tasks {run.size(20000, 2000)} {way}", "redis")
            run.bench(f"far {trip} lateness", f"lateness --rate 1000 --for {span} {way}", "redis")


def disk(run):
    """The same load on a disk, in memory, and on a disk whose syncs are slow, in rounds. Then what
    is written."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            library = disks.build(folder)
            real, memory = disks.on_disk(), disks.in_memory()
        except disks.Absent as why:
            print(f"{'disk':<28}", end="")
            run.lacks("disk", why)
            return
        on_disk, in_memory = disks.Place(real), disks.Place(memory)
        slow = disks.Place(real, library, delay_ms=50)
        span, span_of_adds = run.size("10s", "1s"), run.size("5s", "500ms")
        for _ in range(run.size(3, 1)):
            for rate in [1000, 3500]:
                words = f"lateness --rate {rate} --for {span}"
                run.both(f"steady disk {rate}", words, on_disk)
                run.both(f"steady memory {rate}", words, in_memory)
            run.both("steady slow 1000", f"lateness --rate 1000 --for {span}", slow)
            run.bench("steady bare", f"bare --for {span_of_adds}")
            run.both("steady disk add", f"add --for {span_of_adds}", on_disk)
            run.both("steady memory add", f"add --for {span_of_adds}", in_memory)
        words = f"lateness --rate 1000 --for {span} --purge"
        run.both("written", words, disks.Place(real, library))


def peers_(run):
    tasks = run.size(20000, 1000)
    with Redis() as redis:
        run.peer("BullMQ", lambda: peers.bullmq(redis.url, tasks))
    run.peer("beanstalkd", lambda: peers.beanstalkd(tasks))


GROUPS = {
    "add": add, "batch": batch, "burst": burst, "lateness": lateness, "pull": pull, "idle": idle,
    "disk": disk, "far": far,
    "parts": parts, "peers": peers_, "topics": topics, "flood": flood, "pending": pending,
}


def machine():
    """The machine on which the figures were measured."""
    model = ""
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        models = [line.split(":", 1)[1] for line in lines if line.startswith("model name")]
        model = models[0].strip() if models else ""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    redis = subprocess.run(["redis-server", "--version"], capture_output=True, text=True).stdout
    version = next((word[2:] for word in redis.split() if word.startswith("v=")), "?")
    delayd = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True).stdout
    return {
        "cpus": os.cpu_count(), "model": model, "memory_gib": round(memory),
        "system": f"{platform.system()} {platform.release()}",
        "redis": version, "delayd": delayd.strip(),
        "files": disks.file_system(tempfile.gettempdir()),
    }


def main():
    parser = argparse.ArgumentParser(prog="scripts/bench")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--write", type=Path, metavar="FILE")
    parser.add_argument("--only", default=",".join(GROUPS))
    parser.add_argument("--page", type=Path, metavar="FILE")
    options = parser.parse_args()
    wanted = options.only.split(",")
    unknown = [name for name in wanted if name not in GROUPS]
    if unknown:
        parser.error(f"--only: expected groups of {', '.join(GROUPS)}, got {unknown[0]}")
    if options.page:
        told = json.loads(options.page.read_text())
        page.write(ROOT, told)
        return 0
    run, began = Run(options.short), time.monotonic()
    for run.group in wanted:
        GROUPS[run.group](run)
    if options.write and len(wanted) < len(GROUPS) and options.write.exists():
        # The figures of other groups stay, each with its command.
        before = json.loads(options.write.read_text())
        if before["short"] == run.short:
            run.results = before["results"] | run.results
            absent = before.get("absent", {}).items()
            absent = {key: why for key, why in absent if key not in run.results}
            run.absent = absent | run.absent
    took_s = round(time.monotonic() - began)
    told = {
        "short": run.short, "machine": machine(), "results": run.results,
        "defects": run.defects, "absent": run.absent,
    }
    print("\n" + page.table(told))
    if options.write:
        options.write.write_text(json.dumps(told, indent=1) + "\n")
        page.write(ROOT, told)
    for defect in run.defects:
        print(f"FAILED: {defect}")
    print(f"took {took_s} s")
    return 1 if run.defects else 0


if __name__ == "__main__":
    sys.exit(main())

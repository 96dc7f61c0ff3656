"""Runs the program with a real Redis at small sizes, and measures what the capacity model computes.
See scripts/capacity."""

import asyncio
import random
import subprocess
import time
import urllib.request

from run import Redis

# As in tests/simulation/capacity/setup.rs.
DELAYS_S = (5, 15)
WARM_UP_S = 20
SPAN_S = 15
INSTANCES = (1, 2, 4)
LANES = (1, 10, 100)
RATES = (20, 1000)

CONTENT = '{"sn":"service-0","url":"/due","pad":"' + "x" * 160 + '"}'
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


class Receiver(asyncio.Protocol):
    """Answers each call with 200, and notes by how many milliseconds it is late."""

    late_ms = []

    def connection_made(self, transport):
        self.transport, self.read = transport, b""

    def data_received(self, data):
        self.read += data
        while (end := self.read.find(b"\r\n\r\n")) >= 0:
            head = dict(
                line.split(b": ", 1) for line in self.read[:end].lower().split(b"\r\n")[1:]
            )
            whole = end + 4 + int(head.get(b"content-length", 0))
            if len(self.read) < whole:
                return
            self.read = self.read[whole:]
            self.late_ms.append(time.time() * 1000 - int(head[b"delay-due-ms"]))
            self.transport.write(ANSWER)


class Caller:
    """A connection to one instance, for one add at a time."""

    # On a machine that is too slow, the program refuses adds.
    refused = 0

    def __init__(self, port):
        self.port, self.reader, self.writer = port, None, None

    async def add(self, topic, delay_ms):
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        body = f'{{"topic":"topic-{topic}","delay":"{delay_ms}ms","content":{CONTENT}}}'
        head = "POST /delay/task/add HTTP/1.1\r\nhost: [::1]\r\n"
        head += f"content-length: {len(body)}\r\n\r\n"
        self.writer.write((head + body).encode())
        answer = await self.reader.readuntil(b"\r\n\r\n")
        lines = answer.lower().split(b"\r\n")
        Caller.refused += b" 503 " in lines[0]
        length = next(line for line in lines if line.startswith(b"content-length"))
        await self.reader.readexactly(int(length.split(b":")[1]))


class Instances:
    """Some instances on one Redis, until the end of the block."""

    def __init__(self, program, redis, count, receiver_port):
        self.ports, self.processes = [], []
        for _ in range(count):
            settings = [
                "store.kind=redis", f'store.redis.urls=["{redis.url}"]', "http.bind=127.0.0.1:0",
                f'services."service-0".endpoints=["http://127.0.0.1:{receiver_port}"]',
                "log.level=info",
            ]
            settings = [word for line in settings for word in ("--set", line)]
            process = subprocess.Popen(
                [str(program), "serve", *settings], stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True,
            )
            self.processes.append(process)
            self.ports.append(self._port(process))

    @staticmethod
    def _port(process):
        told = []
        for line in process.stdout:
            told.append(line)
            if "listens on http://" in line:
                address = line.split("listens on http://", 1)[1].split()[0].rstrip(",")
                return int(address.rsplit(":", 1)[1])
        raise SystemExit("delayd does not start:\n" + "".join(told))

    def metric(self, name):
        """The sum of a metric over all instances. The name may have labels."""
        total = 0
        for port in self.ports:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                for line in answer.read().decode().splitlines():
                    if line.startswith(name + " "):
                        total += float(line.rsplit(" ", 1)[1])
        return total

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()


def info(redis, section):
    command = ["redis-cli", "-p", str(redis.port), "INFO", section]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {name: value.strip() for name, value in pairs}


def reading(redis, instances):
    """What was used so far."""
    scripts = dict(
        field.split("=") for field in info(redis, "commandstats")["cmdstat_evalsha"].split(",")
    )
    cpu, stats = info(redis, "cpu"), info(redis, "stats")
    claims = 'delayd_store_operation_duration_seconds_count{op="claim"}'
    return {
        "at": time.monotonic(),
        "calls": float(scripts["calls"]),
        "script_s": float(scripts["usec"]) / 1e6,
        "cpu_s": float(cpu["used_cpu_user_main_thread"]) + float(cpu["used_cpu_sys_main_thread"]),
        "bytes_in": float(stats["total_net_input_bytes"]),
        "bytes_out": float(stats["total_net_output_bytes"]),
        "claims": instances.metric(claims),
        "denied": instances.metric("delayd_claims_denied_total"),
    }


async def add_for(seconds, rate, lanes, ports):
    """Adds tasks at random moments, in an open loop, spread over the instances."""
    idle = {port: [] for port in ports}
    adding = set()

    async def add(port):
        caller = idle[port].pop() if idle[port] else Caller(port)
        delay_ms = random.randint(DELAYS_S[0] * 1000, DELAYS_S[1] * 1000)
        await caller.add(random.randrange(lanes), delay_ms)
        idle[port].append(caller)

    began = time.monotonic()
    due = 0.0
    while due < seconds:
        due += random.expovariate(rate)
        while (wait := began + due - time.monotonic()) > 0:
            await asyncio.sleep(wait)
        task = asyncio.create_task(add(random.choice(ports)))
        adding.add(task)
        task.add_done_callback(adding.discard)
    if adding:
        await asyncio.gather(*adding)


async def measure(program, instances, lanes, rate):
    """The figures of one size."""
    loop = asyncio.get_running_loop()
    Caller.refused = 0
    receiver = await loop.create_server(Receiver, "127.0.0.1", 0, backlog=1024)
    port = receiver.sockets[0].getsockname()[1]
    with Redis() as redis, Instances(program, redis, instances, port) as running:
        load = asyncio.create_task(add_for(WARM_UP_S + SPAN_S, rate, lanes, running.ports))
        await asyncio.sleep(WARM_UP_S)
        before = await loop.run_in_executor(None, reading, redis, running)
        Receiver.late_ms.clear()
        await asyncio.sleep(SPAN_S)
        late = sorted(Receiver.late_ms)
        after = await loop.run_in_executor(None, reading, redis, running)
        await load
    receiver.close()
    used = {name: after[name] - before[name] for name in after}
    return {
        "instances": instances, "lanes": lanes, "rate": rate, "tasks": len(late),
        "refused": Caller.refused,
        "claims_a_task": used["claims"] / len(late),
        "denied_a_task": used["denied"] / len(late),
        "calls_a_task": used["calls"] / len(late),
        "utilization": used["script_s"] / used["at"],
        "cpu": used["cpu_s"] / used["at"],
        "bytes_in_a_task": used["bytes_in"] / len(late),
        "bytes_out_a_task": used["bytes_out"] / len(late),
        "lateness_p50_ms": late[len(late) // 2],
        "lateness_p99_ms": late[len(late) * 99 // 100],
    }


def measure_all(program):
    random.seed(1)
    sizes = [(i, lanes, rate) for rate in RATES for lanes in LANES for i in INSTANCES]
    for size in sizes:
        figures = asyncio.run(measure(program, *size))
        print("  ".join(f"{name} {value:.3g}" for name, value in figures.items()), flush=True)
        yield figures

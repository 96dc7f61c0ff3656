"""What was measured, as a table for the terminal and as docs/PERFORMANCE.md."""

from statistics import median

import plot

STORES = ["embedded", "redis"]


class Told:
    """The results of a run, by key."""

    def __init__(self, told):
        self.told = told
        self.results = told["results"]

    def figure(self, key, name):
        """The median of a figure over its rounds; nothing if it was not measured."""
        rounds = [one["figures"].get(name) for one in self.results.get(key, [])]
        rounds = [value for value in rounds if value is not None]
        return median(rounds) if rounds else None

    def ratio(self, key, name, part, part_name):
        """The median ratio to a part, each round by the part's figure of the same round."""
        pairs = zip(self.results.get(key, []), self.results.get(part, []))
        ratios = [one["figures"][name] / other["figures"][part_name] for one, other in pairs]
        return median(ratios) if ratios else None

    def command(self, key):
        one = self.results.get(key, [{}])[0].get("command")
        return f"`{one.removesuffix(' --store redis')}`" if one else ""

    def sizes(self, group):
        """The sizes that a group was measured at, such as `pending 10000 redis`."""
        return sorted({int(key.split()[1]) for key in self.results if key.startswith(group + " ")})


def number(value, digits=0):
    if value is None:
        return "–"
    if digits and abs(value) < 100:
        return f"{value:.{digits}f}"
    return f"{value:,.0f}"


def percent(ratio):
    return "–" if ratio is None else f"{ratio * 100:.0f} %"


def met(is_met):
    return {None: "", True: " ✓", False: " ✗"}[is_met]


class Row:
    """A measure: its target, and for each store what came of it."""

    def __init__(self, measure, target, command):
        self.measure, self.target, self.command = measure, target, command
        self.cells, self.ratios = {}, []

    def cell(self, store, text, is_met=None):
        self.cells[store] = text + met(is_met)

    def line(self):
        cells = [self.cells.get(store, "–") for store in STORES]
        ratio = "; ".join(self.ratios)
        return f"| {self.measure} | {self.target} | {cells[0]} | {cells[1]} | {ratio} | {self.command} |"


def rows(told):
    yield _adds(told, 64, "≥ 70 % of bare axum", lambda _store, _rate, ratio: ratio >= 0.7)
    least = {"embedded": 3_000, "redis": 6_000}
    yield _adds(told, 1, "≥ 3,000/s, ≥ 6,000/s", lambda store, rate, _ratio: rate >= least[store])
    yield _batch(told)
    yield _burst(told)
    yield _lateness(told, 1000, "p50 ≤ 2 ms, p99 ≤ 5 ms; none early", 2, 5)
    yield _lateness(told, 3500, "p99 ≤ 10 ms; none early", None, 10)
    yield from _pending(told)
    yield from _flood(told)
    yield from _idle(told)
    yield _memory(told)
    yield _rest(told)
    yield _in_flight(told)
    yield _pull(told)


def _adds(told, connections, target, judge):
    row = Row(f"add, one per request, {_connections(connections)}", target, told.command(f"add {connections} embedded"))
    for store in STORES:
        key = f"add {connections} {store}"
        rate, ratio = told.figure(key, "adds_per_s"), told.ratio(key, "adds_per_s", f"bare {connections}", "requests_per_s")
        if rate is not None and ratio is not None:
            row.cell(store, f"{number(rate)}/s", judge(store, rate, ratio))
            row.ratios.append(f"{percent(ratio)} of bare axum ({store})")
    return row


def _connections(count):
    return "one after the other" if count == 1 else f"{count} connections"


def _batch(told):
    row = Row("add_batch of 500", "≥ 150,000 tasks/s", told.command("batch embedded"))
    for store in STORES:
        rate = told.figure(f"batch {store}", "adds_per_s")
        if rate is not None:
            row.cell(store, f"{number(rate)}/s", rate >= 150_000)
    raw, rate = told.figure("raw redis", "batch_256_tasks_per_s"), told.figure("batch redis", "adds_per_s")
    if raw and rate:
        row.ratios.append(f"{percent(rate / raw)} of raw Redis in pipelines of 256")
    return row


def _burst(told):
    tasks = told.figure("burst embedded", "tasks") or told.figure("burst redis", "tasks")
    row = Row(f"{number(tasks)} tasks due in one second, callbacks, one topic, to settled", "≥ 35,000/s", told.command("burst embedded"))
    calls = told.figure("calls", "calls_per_s")
    for store in STORES:
        rate, took = told.figure(f"burst {store}", "settled_per_s"), told.figure(f"burst {store}", "settled_s")
        if rate is not None:
            row.cell(store, f"{number(rate)}/s, drained in {number(took, 2)} s", rate >= 35_000)
            if calls:
                row.ratios.append(f"{percent(rate / calls)} of reqwest → axum ({store})")
    return row


def _lateness(told, rate, target, p50_ms, p99_ms):
    row = Row(f"lateness at {rate:,}/s on one topic, spread over the ms", target, told.command(f"lateness {rate} embedded"))
    for store in STORES:
        key = f"lateness {rate} {store}"
        p50, p99 = told.figure(key, "lateness_p50_ms"), told.figure(key, "lateness_p99_ms")
        if p50 is not None:
            good = p99 <= p99_ms and (p50_ms is None or p50 <= p50_ms)
            earliest = told.figure(key, "earliest_ms")
            row.cell(store, f"p50 {number(p50, 1)}, p99 {number(p99, 1)} ms, earliest +{number(earliest, 1)} ms", good)
    return row


def _pending(told):
    sizes = told.sizes("pending")
    if len(sizes) < 2:
        return
    least, most = sizes[0], sizes[-1]
    measures = [("adds_per_s", "add", "/s", 0, lambda now, then: now >= 0.8 * then),
                ("lateness_p99_ms", "lateness p99", " ms", 1, lambda now, then: now <= 1.2 * then)]
    for name, what, unit, digits, judge in measures:
        row = Row(f"{what} with {most:,} pending", f"within 20 % of that with {least:,}", told.command(f"pending {most} embedded"))
        for store in STORES:
            then, now = (told.figure(f"pending {size} {store}", name) for size in (least, most))
            if then is not None and now is not None:
                row.cell(store, f"{number(now, digits)}{unit} against {number(then, digits)}{unit}", judge(now, then))
        yield row


def _flood(told):
    tasks = told.figure("flood embedded", "flood_tasks") or told.figure("flood redis", "flood_tasks")
    command = told.command("flood embedded")
    quiet = Row(f"one topic, {number(tasks)} due at once: quiet topics' p99 meanwhile", "≤ 50 ms", command)
    memory = Row("… resident memory of delayd, at most", "≤ 300 MB", command)
    script = Row("… the slowest command of Redis; 99.9 % of the scripts", "≤ 5 ms", command)
    for store in STORES:
        key = f"flood {store}"
        p99, most = told.figure(key, "lateness_p99_ms"), told.figure(key, "server_resident_most_mib")
        if p99 is not None:
            quiet.cell(store, f"{number(p99, 1)} ms", p99 <= 50)
        if most is not None:
            memory.cell(store, f"{number(most)} MiB", most * 1.048576 <= 300)
    slowest = told.figure("flood redis", "redis_slowest_command_ms")
    if slowest is not None:
        most = told.figure("flood redis", "redis_scripts_p999_ms")
        script.cell("redis", f"{number(slowest, 1)} ms; {number(most, 1)} ms", slowest <= 5)
        stall = told.figure("stalls", "longest_ms")
        if stall is not None:
            script.ratios.append(f"the machine's own stalls: up to {number(stall, 1)} ms")
    once = Row("… duplicates, of all tasks", "0", command)
    for store in STORES:
        # There is no figure of a run in which one came twice.
        if told.figure(f"flood {store}", "flood_tasks") is not None:
            once.cell(store, "0", True)
    yield from (quiet, memory, script, once)


def _idle(told):
    topics = told.figure("idle embedded", "topics") or told.figure("idle redis", "topics")
    row = Row(f"{number(topics)} idle topics (three instances on Redis), each instance", "≤ 1 % of a core, ≤ 20 round trips/s", told.command("idle redis"))
    cpu = told.figure("idle embedded", "cpu_percent")
    if cpu is not None:
        row.cell("embedded", f"{number(cpu, 2)} %", cpu <= 1)
    cpu, reads = told.figure("idle redis", "cpu_percent"), told.figure("idle redis", "redis_reads_per_s")
    if cpu is not None:
        row.cell("redis", f"{number(cpu, 2)} %, {number(reads, 1)} round trips/s", cpu <= 1 and reads <= 20)
    yield row


def _memory(told):
    sizes = [size for size in told.sizes("pending") if size <= 1_000_000]
    row = Row("what a pending task takes, 200-byte content", "≤ 450 bytes of Redis' memory", told.command(f"pending {sizes[-1]} redis") if sizes else "")
    for store in STORES:
        taken = told.figure(f"pending {sizes[-1]} {store}", "bytes_per_task") if sizes else None
        if taken is not None:
            where = "on disk" if store == "embedded" else "in memory"
            row.cell(store, f"{number(taken)} bytes {where}", taken <= 450 if store == "redis" else None)
    return row


def _rest(told):
    row = Row("resident memory, idle", "≤ 20 MB", told.command("rest embedded"))
    for store in STORES:
        resident = told.figure(f"rest {store}", "server_resident_mib")
        if resident is not None:
            row.cell(store, f"{number(resident, 1)} MiB", resident * 1.048576 <= 20)
    return row


MANY = 100_000


def _slope(told, store):
    """The bytes that one more call in flight takes: from the fewest that were measured to the most. Then the most, and the MiB with them."""
    measured = [(calls, told.figure(f"in-flight {calls} {store}", "resident_with_mib")) for calls in told.sizes("in-flight")]
    measured = [(calls, resident) for calls, resident in measured if resident is not None]
    if len(measured) < 2:
        return None
    (few, with_few), (most, with_most) = measured[0], measured[-1]
    return (with_most - with_few) * 2**20 / (most - few), most, with_most


def _in_flight(told):
    sizes = told.sizes("in-flight")
    row = Row(f"resident memory, {MANY:,} calls in flight", "≤ 250 MB", told.command(f"in-flight {sizes[-1]} embedded") if sizes else "")
    for store in STORES:
        slope = _slope(told, store)
        if slope:
            taken, most, resident = slope
            reckoned = "" if most == MANY else f"reckoned: {number(taken)} bytes a call, measured up to {most:,}: "
            resident += taken * (MANY - most) / 2**20
            row.cell(store, f"{reckoned}{number(resident)} MiB", resident * 1.048576 <= 250)
    return row


def _pull(told):
    row = Row("pull under a lease, and ack, 16 consumers", "–", told.command("pull embedded"))
    for store in STORES:
        rate = told.figure(f"pull {store}", "pulled_and_acked_per_s")
        if rate is not None:
            row.cell(store, f"{number(rate)}/s")
    return row


def in_flight(told):
    """What was measured of calls in flight, store beside store."""
    sizes = told.sizes("in-flight")
    if not sizes:
        return ""
    lines = ["| calls in flight | embedded: resident before, with them, bytes a call | Redis |", "|---|---|---|"]
    for calls in sizes:
        cells = []
        for store in STORES:
            before, resident, taken = (told.figure(f"in-flight {calls} {store}", name) for name in ("resident_before_mib", "resident_with_mib", "bytes_per_call"))
            cells.append("–" if taken is None else f"{number(before, 1)} MiB, {number(resident)} MiB, {number(taken)}")
        lines.append(f"| {calls:,} | {cells[0]} | {cells[1]} |")
    return IN_FLIGHT.replace("TABLE", "\n".join(lines))


def table(told):
    head = "| measure | target | embedded | Redis everysec | to the part, same run | again by |\n|---|---|---|---|---|---|"
    return "\n".join([head, *(row.line() for row in rows(Told(told)))])


def parts(told):
    lines = ["| part or peer | figure |", "|---|---|"]
    for connections in (64, 1):
        rate = told.figure(f"bare {connections}", "requests_per_s")
        if rate is not None:
            lines.append(f"| axum, the same JSON in and out, no store, {_connections(connections)} | {number(rate)} requests/s |")
    calls = told.figure("calls", "calls_per_s")
    if calls is not None:
        lines.append(f"| reqwest → axum, 256 at a time | {number(calls)} calls/s |")
    raw = [told.figure("raw redis", f"batch_{size}_tasks_per_s") for size in (1, 16, 64, 256)]
    if all(raw):
        lines.append(f"| Redis `HSET` + `ZADD`, one connection, pipelines of 1 / 16 / 64 / 256 | {' / '.join(map(number, raw))} tasks/s |")
    stall, often = told.figure("stalls", "longest_ms"), told.figure("stalls", "over_1_ms_per_s")
    if stall is not None:
        text = f"{number(stall, 1)} ms; {number(often, 1)} of 1 ms or more a second"
        lines.append(f"| the longest stall of a program that only reads the clock, one for each processor, with nothing else to do | {text} |")
    for name, what in [("BullMQ", "BullMQ 5 (Node library, no HTTP), Redis everysec"), ("beanstalkd", "beanstalkd (raw TCP, pipelined, with its log)")]:
        adds = told.figure(name, "adds_per_s")
        if adds is not None:
            delivered, earliest = told.figure(name, "delivered_per_s"), told.figure(name, "earliest_ms")
            text = f"{number(adds)} adds/s; {number(delivered)} delivered/s; earliest {earliest:+.0f} ms"
            lines.append(f"| {what} | {text} |")
    return "\n".join(lines)


def brief(figures):
    """Those that a scenario is played for, in a line."""
    telling = ("_per_s", "_p50_ms", "_p99_ms", "earliest_ms", "bytes_per_task", "bytes_per_call", "cpu_percent", "slowest_command_ms",
               "scripts_p999_ms", "longest_ms", "resident_most_mib")
    return ", ".join(f"{name} {number(value, 2)}" for name, value in figures.items() if name.endswith(telling))


# By `MEMORY USAGE` and by what `used_memory` grows by, of hashes and sorted sets of this shape.
MEMORY = """## What a pending task takes in Redis

A task is a field of its lane's bodies and a member of a schedule. With 200 bytes of content and `bench.receiver` as destination:

| part | bytes | allocated: jemalloc as Debian builds it (steps of 16) | as Redis builds it (steps of 8), reckoned |
|---|---|---|---|
| body: head of 47 and content, header and end | 251 | 256 | 256 |
| id, as the field's name | 18 | 32 | 24 |
| entry in the hash | 24 | 32 | 24 |
| id, as the schedule's member | 18 | 32 | 24 |
| node of the skip list, 1.33 levels on average | 45 | 53 | 45 |
| entry in the schedule's own hash | 24 | 32 | 24 |
| buckets of both hashes, 8 bytes each | 17–32 | 17–32 | 17–32 |
| together | | 454–469 | 414–429 |

The number of buckets is a power of two, so a task takes least just before it doubles; while a table grows the old one is there as well. Measured with 600,000, a million and 1.5 million
tasks: 479, 454 and 459 bytes (jemalloc in steps of 16); 415 with a million in Redis 7.2.6 as its own Makefile builds it (steps of 8), which is how its official image is made. The next smaller size of a body would be 224 bytes, which 200 of content, two moments and a destination do not
fit into; a head of 53 bytes or more takes 320. Ids in another base would save 32 bytes, for a conversion in every script and a second spelling of each id.

"""


# By `valgrind --tool=massif` with the system's allocator, a thousand calls held against none, 2026-11-22.
IN_FLIGHT = """## What a call in flight takes

Calls over HTTP/1.1 with contents of 200 bytes, held by a receiver until all have come. Bytes a call: what the resident memory grew by.

TABLE

| part | bytes allocated |
|---|---|
| hyper: the channel between a request and its connection, a block for 32 of them | 8,992 |
| hyper: the buffer that the answer will be read to | 8,192 |
| hyper: the buffer that the head of the request was written from | 8,192 |
| hyper-util: the request under way, with room for the connection that had to come about first | 3,498 |
| hyper: the connection's task, its other channels, its list of what is to be written | 3,217 |
| delayd: the call's task, with lease, options, slots and timers | 1,792 |
| the request's headers, which hyper keeps for those of the answer | 1,307 |
| tokio: the socket | 255 |
| delayd: the lease in hand | 243 |
| the content | 205 |
| all else, SQLite's pages among it | 469 |
| together | 36,362 |

What was never written to is not resident: much of the first three. Before, a call had 41,813 bytes allocated, and 31,775 resident (embedded, 8,000 calls, against 25,321): its headers
were there twice, in maps for 24, its content twice, and the parts of its task three times.

"""


# By `perf record -e cpu-clock -a` over adds of 64 connections, 2026-11-22, and the other commands named.
LIMITS = """## What is short of its target, and why

**Adds over 64 connections** (half of bare axum, where 70 % is wanted). All of it shares two cores. Of the processor's time an add takes

| | Redis | embedded |
|---|---|---|
| the load, most of it in the kernel's sockets | 26 % | 23 % |
| delayd: the kernel's sockets | 24 % | 20 % |
| delayd: HTTP, JSON, checks, the answer | 17 % | 12 % |
| the store: Redis' script and log, or the thread that writes | 16 % | 6 % |
| the store: sockets, or the log's file and its sync | 6 % | 19 % |
| waiting for one another | 11 % | 18 % |

On Redis that was 39 µs an add (50,800/s): 19.7 for the load and delayd's sockets, which is what a request to bare axum takes in all, and 8.6 for Redis, whose script keeps some 30 tasks at once. 70 % of bare axum
are 27 µs, so that delayd would have to read, check and answer in no time, and nobody to wait. It takes 6.5, for 37,300 user instructions (48,000 on the embedded store, SQLite's own among them; callgrind); once it was 161,000, and bare axum has 22,300. The last quarter that was saved made
little difference (52,500 and 53,800/s, the medians of four rounds in turn). On the embedded store (39,400/s in that trace, 51 µs) the sync of the log is what is added: data, then a flush, by the kernel's own threads.

**Adds in sequence, embedded** (2,500 to 3,200/s in five rounds, of 3,000). By a trace of the scheduler and the system calls (`perf record -a -e sched:sched_switch,sched:sched_waking,syscalls:…`, 2,790/s) the 358 µs of an add are:
the sync of the log 156 (the median; 190 on average, and a tenth of them more than 310), SQL and its six writes 41, waking the thread that writes 8 and the one that answers 35, reading, checking
and answering 41, the client 27.

**The slowest command of Redis in a flood.** A claim or settle takes 64 tasks, an add 128, and 999 of 1,000 script calls stay below 2 ms. The slowest are not the longest scripts but those in whose
middle the machine stopped Redis: single commands inside of them (an `HMGET`, an `HSET`) stand in the slow log with 4 to 15 ms, and two programs that do nothing but read the clock are stopped for as
long, as the table of parts says. With Redis at the highest priority (`nice -n -15`) and no rewrite of its log the slowest was 17 ms, so that it is not delayd's threads that it waited for.

**100,000 calls in flight** (2.5 to 2.7 GB reckoned, of 250 MB). That would be 2,500 bytes a call, which takes 25,000: [below](#what-a-call-in-flight-takes). Of 36,362 bytes allocated 32,091 are the HTTP library's, for a
connection over HTTP/1.1. The buffers (8,192 bytes) and the block of the channel (32 requests) are constants of it; the read buffer's size can be set, but is then also the longest head that an answer may have,
and below 4,096 bytes before it saves a page. The limit of open files allows 9,312 calls on this machine (20,000, of which delayd gives half to calls). Calls over HTTP/2, many to a connection, were not measured.

**A pending task in Redis** (455 bytes of 450 in Debian's build of Redis, 415 in Redis' own): below.

**Adds with ten million pending, Redis** (53 % of those with 10,000 in the last run, 77 and 86 % in two others). Redis' tables double at 8.4 million entries (2^23), and are moved a little with each command: with ten million this move, `dictRehash`, takes 26 % of Redis' processor
time during the adds and `dictFind` 14 % (6 and 8 % with 10,000; `perf record -p` of Redis). A task costs Redis 11.7 µs of user time instead of 6.4. When the move came to its end in the middle of a
run, the rate rose by 14 %.

**Lateness with ten million pending, embedded** (p99 52 ms in the last run, 3.3 in the one before). Not explained yet. The fill that ends just before writes some 300 MB a second (`vmstat`), and what of it the
disk still has to take in was not looked at.

The hump of the embedded store at 100,000 pending is its write-ahead log, up to 256 MiB, which is counted with the file.

"""


def write(root, told):
    """Writes the page and its plots."""
    shown = Told(told)
    folder = root / "docs" / "performance"
    plots = []
    for name, title, alt in [("pending", "More that waits", "cost against tasks pending"), ("topics", "More topics", "cost against topics")]:
        svg = plot.draw(shown, name)
        if svg:
            (folder / f"{name}.svg").write_text(svg)
            plots.append(f"## {title}\n\n![{alt}](performance/{name}.svg)\n")
    machine = told["machine"]
    short = "\n**These figures are of a short run, which only shows that the measuring works.**\n" if told["short"] else ""
    defects = "".join(f"- {defect}\n" for defect in told["defects"])
    broken = f"\nNot as promised, or not measured:\n\n{defects}" if defects else ""
    page = f"""# Performance

What delayd does on one machine that it shares with the load, the receiver and Redis, and what the parts it is made of can do there, measured in the same run.
Written by `scripts/bench --write`, last by `{told['command']}` ({told['took_s']} s; what a run leaves out stays as it was); [`delayd bench`](OPERATIONS.md#measuring-it) plays each scenario alone.
{short}
Every figure counts verified work alone: each task was accepted, arrived exactly once, and none before its due millisecond. Throughput is measured by a closed loop, lateness by
an open one: moments are planned in advance, and what is late is counted from them. ✓ and ✗ say whether the target was met in this run. Where a measure was taken in several rounds,
the median is shown, and a ratio is that of the same round; – is what this run did not measure.

{table(told)}

## Parts and peers

{parts(shown)}

What happens under faults (nothing lost, redelivery within lease + 1 s) is in [RELIABILITY.md](RELIABILITY.md).

A peer's callback is a function in its own process, or an answer on a socket; delayd's is an HTTP request to a receiver that answers 200.
{broken}
{LIMITS}{"".join(plot_ + chr(10) for plot_ in plots)}{MEMORY if shown.sizes("pending") else ""}{in_flight(shown)}## Machine

{machine['cpus']} processors ({machine['model']}), {machine['memory_gib']} GiB, {machine['system']}; Redis {machine['redis']}, AOF everysec; {machine['delayd']}; {machine['date']}.
Contents of 200 bytes. Such machines are noisy: ratios of one run say more than its figures. The raw ones are in [figures.json](performance/figures.json).
"""
    (root / "docs" / "PERFORMANCE.md").write_text(page)

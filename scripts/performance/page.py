"""What was measured, as a table for the terminal and as docs/PERFORMANCE.md."""

import textwrap
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

    def moments(self):
        """When each group was measured last."""
        last = {}
        for one in (one for rounds in self.results.values() for one in rounds if "group" in one):
            last[one["group"]] = max(one["at"], last.get(one["group"], ""))
        return last

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


def wrapped(text, indent=""):
    """A paragraph or an item of a list, in lines of 100 columns."""
    return textwrap.fill(text, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


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
        row.ratios.append(f"{percent(rate / raw)} of raw Redis in pipelines of 256 (redis)")
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
    """The bytes that one more call in flight takes: from the fewest that were measured to the most. Then these two numbers, and the MiB with the most."""
    measured = [(calls, told.figure(f"in-flight {calls} {store}", "resident_with_mib")) for calls in told.sizes("in-flight")]
    measured = [(calls, resident) for calls, resident in measured if resident is not None]
    if len(measured) < 2:
        return None
    (few, with_few), (most, with_most) = measured[0], measured[-1]
    return (with_most - with_few) * 2**20 / (most - few), few, most, with_most


def _in_flight(told):
    sizes = told.sizes("in-flight")
    row = Row(f"resident memory, {MANY:,} calls in flight", "≤ 250 MB", told.command(f"in-flight {sizes[-1]} embedded") if sizes else "")
    for store in STORES:
        slope = _slope(told, store)
        if slope:
            taken, few, most, resident = slope
            reckoned = "" if most == MANY else f"reckoned, {number(taken)} bytes for each more as from {few:,} to {most:,}: "
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
    lines = ["| calls in flight | embedded: resident before, with them, bytes per call | Redis |", "|---|---|---|"]
    for calls in sizes:
        cells = []
        for store in STORES:
            before, resident, taken = (told.figure(f"in-flight {calls} {store}", name) for name in ("resident_before_mib", "resident_with_mib", "bytes_per_call"))
            cells.append("–" if taken is None else f"{number(before, 1)} MiB, {number(resident)} MiB, {number(taken)}")
        lines.append(f"| {calls:,} | {cells[0]} | {cells[1]} |")
    return "## Calls in flight\n\n" + "\n".join(lines) + "\n\nBytes per call are the growth of the resident memory.\n[Limits](performance/limits.md#what-a-call-in-flight-takes) lists what they consist of.\n\n"


def table(told):
    head = "| measure | target | embedded | Redis everysec | to the part | again by |\n|---|---|---|---|---|---|"
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


def write(root, told):
    """Writes the page and its plots."""
    shown = Told(told)
    folder = root / "docs" / "performance"
    plots = []
    for name, title, alt in [("pending", "More pending tasks", "cost against tasks pending"), ("topics", "More topics", "cost against topics")]:
        svg = plot.draw(shown, name)
        if svg:
            (folder / f"{name}.svg").write_text(svg)
            plots.append(f"## {title}\n\n![{alt}](performance/{name}.svg)\n")
    machine = told["machine"]
    short = "\n**These figures are of a short run, which only shows that the measuring works.**\n" if told["short"] else ""
    defects = "".join(wrapped(f"- {defect}", "  ") + "\n" for defect in told["defects"])
    broken = f"\nBroken promises:\n\n{defects}" if defects else ""
    absent = "".join(wrapped(f"- {key}: {why}", "  ") + "\n" for key, why in sorted(told.get("absent", {}).items()))
    absent = f"\nNot measured:\n\n{absent}" if absent else ""
    moments = ", ".join(f"{group} {at}" for group, at in sorted(shown.moments().items()))
    hardware = f"{machine['cpus']} processors ({machine['model']}), {machine['memory_gib']} GiB, {machine['system']}"
    on = f"{hardware}; Redis {machine['redis']}, AOF everysec; {machine['delayd']}. Each content has 200 bytes."
    page = f"""# Performance

The performance of delayd on one machine, which it shares with the load generator, the receiver and
Redis, and the performance of the parts that it is made of. `scripts/bench --write` measures and
writes this page, whole or in groups ([when](#machine)). [`delayd
bench`](OPERATIONS.md#measuring-it) runs each scenario alone. For targets that are missed, see
[limits](performance/limits.md).
{short}
Every figure counts verified work only: each task was accepted, arrived exactly once, and not before
its due millisecond. Throughput is measured in a closed loop: each connection sends its next request
after the answer to the one before. Lateness is measured in an open loop: all due times are
planned in advance, and lateness counts from them. A figure that was measured in several rounds is
the median.

✓ and ✗ say whether the target was met, and – that nothing was measured. The ratio to bare axum
compares figures of the same round, seconds apart. Ratios to other parts compare two medians.

{table(told)}

## Parts and peers

{parts(shown)}

[RELIABILITY.md](RELIABILITY.md) has the figures under faults.

The two peers do less for each task: BullMQ calls a function in its own process, and beanstalkd
answers on an open socket. delayd sends an HTTP request to a receiver, which answers 200.
{broken}{absent}
{"".join(plot_ + chr(10) for plot_ in plots)}{in_flight(shown)}## Machine

{wrapped(on)}

{wrapped(f"Last measured (UTC): {moments}.")}

Such machines are noisy: ratios within one run are more reliable than single figures.
[figures.json](performance/figures.json) has the raw figures.
"""
    (root / "docs" / "PERFORMANCE.md").write_text(page)

"""Shows the measured figures as a table in the terminal and as docs/PERFORMANCE.md."""

import textwrap
from statistics import median

import disk as disks
import plot

STORES = ["embedded", "redis"]
# The round trips to a Redis that is far away, in milliseconds.
ROUND_TRIPS = [2, 10]


class Told:
    """The results of a run, by key."""

    def __init__(self, told):
        self.told = told
        self.results = told["results"]

    def figure(self, key, name):
        """The median of a figure over its rounds; None if it was not measured."""
        rounds = [one["figures"].get(name) for one in self.results.get(key, [])]
        rounds = [value for value in rounds if value is not None]
        return median(rounds) if rounds else None

    def ratio(self, key, name, part, part_name):
        """The median of the ratios to a part; each ratio is of one round."""
        pairs = zip(self.results.get(key, []), self.results.get(part, []))
        ratios = [one["figures"][name] / other["figures"][part_name] for one, other in pairs]
        return median(ratios) if ratios else None

    def command(self, key):
        one = self.results.get(key, [{}])[0].get("command")
        words = one.removeprefix("delayd-bench ").removesuffix(" --store redis") if one else ""
        return words and f"`{words}`"

    def moments(self):
        """When each group was measured last."""
        last = {}
        for one in (one for rounds in self.results.values() for one in rounds if "group" in one):
            last[one["group"]] = max(one["at"], last.get(one["group"], ""))
        return last

    def sizes(self, group):
        """The sizes at which a group was measured, such as `pending 10000 redis`."""
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
    """A measure: its target, and the result for each store."""

    def __init__(self, measure, target, command):
        self.measure, self.target, self.command = measure, target, command
        self.cells, self.ratios = {}, {}

    def cell(self, store, text, is_met=None):
        self.cells[store] = text + met(is_met)

    def ratio(self, store, text, part):
        self.ratios.setdefault(part, {})[store] = text

    def line(self):
        cells = [self.cells.get(store, "–") for store in STORES]
        ratios = "; ".join(
            f"{', '.join(texts.values())} {part}"
            + ("" if len(texts) == len(STORES) else f" ({', '.join(texts)})")
            for part, texts in self.ratios.items()
        )
        return f"| {' | '.join([self.measure, self.target, *cells, ratios, self.command])} |"


def rows(told):
    yield _adds(told, 64, "≥ 70 % of bare axum", lambda _store, _rate, ratio: ratio >= 0.7)
    least = {"embedded": 3_000, "redis": 6_000}
    yield _adds(told, 1, "≥ 3,000/s, ≥ 6,000/s", lambda store, rate, _ratio: rate >= least[store])
    yield _batch(told)
    yield _burst(told)
    yield _lateness(told, 1000, "p50 ≤ 2 ms, p99 ≤ 5 ms; none early", 2, 5)
    yield _lateness(told, 3500, "p99 ≤ 10 ms; none early", None, 10)
    for row in [*_disk(told), _written(told), _processor(told), _over_topics(told)]:
        row.measure += " †"
        yield row
    yield from _far(told)
    yield from _pending(told)
    yield from _flood(told)
    yield from _idle(told)
    yield _memory(told)
    yield _rest(told)
    yield _pull(told)


def _adds(told, connections, target, judge):
    measure = f"add, one per request, {_connections(connections)}"
    row = Row(measure, target, told.command(f"add {connections} embedded"))
    for store in STORES:
        key = f"add {connections} {store}"
        rate = told.figure(key, "adds_per_s")
        ratio = told.ratio(key, "adds_per_s", f"bare {connections}", "requests_per_s")
        if rate is not None and ratio is not None:
            row.cell(store, f"{number(rate)}/s", judge(store, rate, ratio))
            row.ratio(store, percent(ratio), "of bare axum")
    return row


def _connections(count):
    return "one after the other" if count == 1 else f"{count} connections"


def _batch(told):
    row = Row("add_batch of 500", "≥ 150,000 tasks/s", told.command("batch embedded"))
    for store in STORES:
        rate = told.figure(f"batch {store}", "adds_per_s")
        if rate is not None:
            row.cell(store, f"{number(rate)}/s", rate >= 150_000)
    raw = told.figure("raw redis", "batch_256_tasks_per_s")
    rate = told.figure("batch redis", "adds_per_s")
    if raw and rate:
        row.ratio("redis", percent(rate / raw), "of raw Redis in pipelines of 256")
    return row


def _burst(told):
    tasks = told.figure("burst embedded", "tasks") or told.figure("burst redis", "tasks")
    measure = f"{number(tasks)} tasks due in one second, callbacks, one topic, to settled"
    row = Row(measure, "≥ 35,000/s", told.command("burst embedded"))
    calls = told.figure("calls", "calls_per_s")
    for store in STORES:
        rate = told.figure(f"burst {store}", "settled_per_s")
        took = told.figure(f"burst {store}", "settled_s")
        if rate is not None:
            row.cell(store, f"{number(rate)}/s, drained in {number(took, 2)} s", rate >= 35_000)
            if calls:
                row.ratio(store, percent(rate / calls), "of reqwest → axum")
    return row


def _lateness(told, rate, target, p50_ms, p99_ms):
    measure = f"lateness at {rate:,}/s on one topic, spread over the ms"
    row = Row(measure, target, told.command(f"lateness {rate} embedded"))
    for store in STORES:
        key = f"lateness {rate} {store}"
        p50 = told.figure(key, "lateness_p50_ms")
        p99 = told.figure(key, "lateness_p99_ms")
        if p50 is not None:
            good = p99 <= p99_ms and (p50_ms is None or p50 <= p50_ms)
            earliest = told.figure(key, "earliest_ms")
            late = f"p50 {number(p50, 1)}, p99 {number(p99, 1)} ms"
            row.cell(store, f"{late}, earliest +{number(earliest, 1)} ms", good)
    return row


PLACES = {"disk": "a disk", "memory": "tmpfs", "slow": "a disk with syncs delayed by 50 ms"}


def _disk(told):
    """The same load on a disk, in memory, and on a slow disk, with ratios of the same round."""
    for rate, name, target, is_good in [
        (1000, "slow", "p50 ≤ 2 ms, p99 ≤ 6 ms", lambda p50, p99: p50 <= 2 and p99 <= 6),
        (1000, "disk", "p99 ≤ twice that on tmpfs", None),
        (3500, "disk", "p99 ≤ 10 ms", lambda _p50, p99: p99 <= 10),
    ]:
        command = told.command(f"steady {name} {rate} embedded")
        row = Row(f"lateness at {rate:,}/s on {PLACES[name]}", target, command)
        for store in STORES:
            key = f"steady {name} {rate} {store}"
            p50, p99 = (told.figure(key, f"lateness_{of}_ms") for of in ("p50", "p99"))
            if p99 is None:
                continue
            ratios = {}
            for other in PLACES:
                if other != name and told.results.get(f"steady {other} {rate} {store}"):
                    ratios[other] = told.ratio(
                        key, "lateness_p99_ms", f"steady {other} {rate} {store}", "lateness_p99_ms")
            good = is_good(p50, p99) if is_good else ratios.get("memory", 9) <= 2
            row.cell(store, f"p50 {number(p50, 1)}, p99 {number(p99, 1)} ms", good)
            for other in ("disk", "memory"):
                if other in ratios:
                    times = number(ratios[other], 1)
                    row.ratio(store, times, f"times the p99 on {PLACES[other]}")
        yield row
    row = Row("add, one per request, 64 connections: on a disk; on tmpfs",
              "≥ 60 % of bare axum on both", told.command("steady disk add embedded"))
    for store in STORES:
        ratios = [told.ratio(f"steady {name} add {store}", "adds_per_s", "steady bare",
                             "requests_per_s") for name in ("disk", "memory")]
        rates = [told.figure(f"steady {name} add {store}", "adds_per_s")
                 for name in ("disk", "memory")]
        if all(ratios):
            text = "; ".join(f"{number(rate)}/s" for rate in rates)
            row.cell(store, text, min(ratios) >= 0.6)
            for place, ratio in zip(("a disk", "tmpfs"), ratios):
                row.ratio(store, percent(ratio), f"of bare axum, on {place}")
    yield row


def _written(told):
    row = Row("written per life of a task (add, claim, settle, purge) at 1,000/s",
              "≤ 8 KB, ≤ 10 calls", told.command("written embedded"))
    for store in STORES:
        written, calls, syncs = (told.figure(f"written {store}", f"written_{of}_per_task")
                                 for of in ("bytes", "calls", "syncs"))
        if written is not None:
            text = f"{number(written / 1000, 1)} KB in {number(calls, 1)} calls"
            row.cell(store, f"{text}, {number(syncs, 2)} syncs", written <= 8_000 and calls <= 10)
    return row


def _processor(told):
    row = Row("processor for a steady 1,000 tasks/s, delayd alone", "≤ 20 % of a core",
              told.command("steady disk 1000 embedded"))
    for store in STORES:
        used = told.figure(f"steady disk 1000 {store}", "server_cpu_percent")
        if used is not None:
            row.cell(store, f"{number(used, 1)} %", used <= 20)
    return row


def _over_topics(told):
    row = Row("adds over 5,000 topics, 64 connections", "≥ 85 % of adds to one topic",
              told.command("topics 5000 embedded"))
    for store in STORES:
        key = f"topics 5000 {store}"
        rate = told.figure(key, "adds_per_s")
        ratio = told.ratio(key, "adds_per_s", f"topics 1 {store}", "adds_per_s")
        if rate is not None and ratio is not None:
            row.cell(store, f"{number(rate)}/s", ratio >= 0.85)
            row.ratio(store, percent(ratio), "of adds to one topic")
    return row


def _far(told):
    """Redis at a distance; no rows before it was measured."""
    for trip in ROUND_TRIPS:
        keys = {name: f"far {trip} {name}" for name in ("add", "burst", "lateness")}
        if all(told.figure(key, "server_cpus") is None for key in keys.values()):
            continue
        away = f"Redis {trip} ms away"
        rate, p50 = (told.figure(keys["add"], name) for name in ("adds_per_s", "answer_p50_ms"))
        least = {2: 18_000, 10: 4_000}[trip]
        row = Row(f"{away}: add, 64 connections", f"≥ {least:,}/s, p50 ≤ 1.5 round trips + 1 ms",
                  told.command(keys["add"]))
        if rate is not None:
            is_met = rate >= least and p50 <= 1.5 * trip + 1
            row.cell("redis", f"{number(rate)}/s, p50 {number(p50, 1)} ms", is_met)
        yield row
        ratio = told.ratio(keys["burst"], "settled_per_s", "far 0 burst", "settled_per_s")
        rate = told.figure(keys["burst"], "settled_per_s")
        target = {2: "≥ 70 % of Redis without the distance", 10: "≥ 10,000/s"}[trip]
        row = Row(f"{away}: 20,000 tasks due in one second", target, told.command(keys["burst"]))
        if rate is not None and ratio is not None:
            is_met = ratio >= 0.7 if trip == 2 else rate >= 10_000
            row.cell("redis", f"{number(rate)}/s", is_met)
            row.ratio("redis", percent(ratio), "of Redis without the distance")
        yield row
        p50, p99 = (told.figure(keys["lateness"], f"lateness_{of}_ms") for of in ("p50", "p99"))
        most = {2: (3.5, 6), 10: (12, None)}[trip]
        target = f"p50 ≤ {most[0]} ms" + (f", p99 ≤ {most[1]} ms" if most[1] else "")
        row = Row(f"{away}: lateness at 1,000/s", target, told.command(keys["lateness"]))
        if p50 is not None:
            is_met = p50 <= most[0] and (most[1] is None or p99 <= most[1])
            row.cell("redis", f"p50 {number(p50, 1)}, p99 {number(p99, 1)} ms", is_met)
        yield row


def _pending(told):
    sizes = told.sizes("pending")
    if len(sizes) < 2:
        return
    least, most = sizes[0], sizes[-1]
    measures = [("adds_per_s", "add", "/s", 0, lambda now, then: now >= 0.8 * then),
                ("lateness_p99_ms", "lateness p99", " ms", 1, lambda now, then: now <= 1.2 * then)]
    for name, what, unit, digits, judge in measures:
        target = f"within 20 % of that with {least:,}"
        command = told.command(f"pending {most} embedded")
        row = Row(f"{what} with {most:,} pending", target, command)
        for store in STORES:
            then, now = (told.figure(f"pending {size} {store}", name) for size in (least, most))
            if then is not None and now is not None:
                text = f"{number(now, digits)}{unit} against {number(then, digits)}{unit}"
                row.cell(store, text, judge(now, then))
        yield row


def _flood(told):
    tasks = [told.figure(f"flood {store}", "flood_tasks") for store in STORES]
    tasks = tasks[0] or tasks[1]
    command = told.command("flood embedded")
    measure = f"one topic, {number(tasks)} due at once: quiet topics' p99 meanwhile"
    quiet = Row(measure, "≤ 50 ms", command)
    memory = Row("… resident memory of delayd, at most", "≤ 300 MB", "")
    script = Row("… 99.9 % of the scripts of Redis", "≤ 5 ms", "")
    for store in STORES:
        key = f"flood {store}"
        p99 = told.figure(key, "lateness_p99_ms")
        most = told.figure(key, "server_resident_most_mib")
        if p99 is not None:
            quiet.cell(store, f"{number(p99, 1)} ms", p99 <= 50)
        if most is not None:
            memory.cell(store, f"{number(most)} MiB", most * 1.048576 <= 300)
    most = told.figure("flood redis", "redis_scripts_p999_ms")
    if most is not None:
        script.cell("redis", f"{number(most, 1)} ms", most <= 5)
    once = Row("… duplicates, of all tasks", "0", "")
    for store in STORES:
        # A run with a duplicate has no figures.
        if told.figure(f"flood {store}", "flood_tasks") is not None:
            once.cell(store, "0", True)
    yield from (quiet, memory, script, once)


def _idle(told):
    topics = told.figure("idle embedded", "topics") or told.figure("idle redis", "topics")
    measure = f"{number(topics)} idle topics (three instances on Redis), each instance"
    target = "≤ 1 % of a core, ≤ 20 round trips/s"
    row = Row(measure, target, told.command("idle redis"))
    cpu = told.figure("idle embedded", "cpu_percent")
    if cpu is not None:
        row.cell("embedded", f"{number(cpu, 2)} %", cpu <= 1)
    cpu = told.figure("idle redis", "cpu_percent")
    reads = told.figure("idle redis", "redis_reads_per_s")
    if cpu is not None:
        text = f"{number(cpu, 2)} %, {number(reads, 1)} round trips/s"
        row.cell("redis", text, cpu <= 1 and reads <= 20)
    yield row


def _memory(told):
    sizes = [size for size in told.sizes("pending") if size <= 1_000_000]
    command = told.command(f"pending {sizes[-1]} redis") if sizes else ""
    row = Row("size of a pending task, 200-byte content", "≤ 450 bytes of Redis' memory", command)
    for store in STORES:
        taken = told.figure(f"pending {sizes[-1]} {store}", "bytes_per_task") if sizes else None
        if taken is not None:
            where = "on disk, with the log of up to 256 MiB" if store == "embedded" else "in memory"
            good = taken <= 450 if store == "redis" else None
            row.cell(store, f"{number(taken)} bytes {where}", good)
    return row


def _rest(told):
    row = Row("resident memory, idle", "≤ 20 MB", told.command("rest embedded"))
    for store in STORES:
        resident = told.figure(f"rest {store}", "server_resident_mib")
        if resident is not None:
            row.cell(store, f"{number(resident, 1)} MiB", resident * 1.048576 <= 20)
    return row


def _pull(told):
    row = Row("pull under a lease, and ack, 16 consumers", "–", told.command("pull embedded"))
    for store in STORES:
        rate = told.figure(f"pull {store}", "pulled_and_acked_per_s")
        if rate is not None:
            row.cell(store, f"{number(rate)}/s")
    return row


def table(told):
    head = [
        "| measure | target | embedded | Redis everysec | ratio to a part | `delayd-bench` |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *(row.line() for row in rows(Told(told)))])


PEERS = [
    ("BullMQ", "BullMQ 5 (Node library, no HTTP), Redis everysec"),
    ("beanstalkd", "beanstalkd (raw TCP, pipelined, with its log)"),
]


def parts(told):
    lines = ["| part or peer | figure |", "|---|---|"]
    for connections in (64, 1):
        rate = told.figure(f"bare {connections}", "requests_per_s")
        if rate is not None:
            what = f"axum, the same JSON in and out, no store, {_connections(connections)}"
            lines.append(f"| {what} | {number(rate)} requests/s |")
    calls = told.figure("calls", "calls_per_s")
    if calls is not None:
        lines.append(f"| reqwest → axum, 256 at a time | {number(calls)} calls/s |")
    raw = [told.figure("raw redis", f"batch_{size}_tasks_per_s") for size in (1, 16, 64, 256)]
    if all(raw):
        what = "redis-benchmark, `HSET` and `ZADD` in turns, pipelines of 1 / 16 / 64 / 256"
        lines.append(f"| {what} | {' / '.join(map(number, raw))} tasks/s |")
    stall = told.figure("stalls", "longest_ms")
    often = told.figure("stalls", "over_1_ms_per_s")
    if stall is not None:
        what = "the longest stall of an idle machine, measured by a program on each processor"
        text = f"{number(stall, 1)} ms; {number(often, 1)} per second of 1 ms or more"
        lines.append(f"| {what} | {text} |")
    for name, what in PEERS:
        adds = told.figure(name, "adds_per_s")
        if adds is not None:
            delivered = told.figure(name, "delivered_per_s")
            earliest = told.figure(name, "earliest_ms")
            rates = f"{number(adds)} adds/s; {number(delivered)} delivered/s"
            lines.append(f"| {what} | {rates}; earliest {earliest:+.0f} ms |")
    return "\n".join(lines)


def brief(figures):
    """The most important figures of a scenario, in one line."""
    important = ("_per_s", "_p50_ms", "_p99_ms", "earliest_ms", "_per_task",
                 "cpu_percent", "scripts_p999_ms", "longest_ms",
                 "resident_most_mib")
    shown = [(name, value) for name, value in figures.items() if name.endswith(important)]
    return ", ".join(f"{name} {number(value, 2)}" for name, value in shown)


def paragraph(text, indent=""):
    """A paragraph of Markdown with lines of at most 100 columns."""
    return textwrap.fill(
        " ".join(text.split()), 100, subsequent_indent=indent,
        break_long_words=False, break_on_hyphens=False,
    )


def write(root, told):
    """Writes the page and its plots."""
    shown = Told(told)
    folder = root / "docs" / "performance"
    plots = []
    for name, title, alt in [
        ("pending", "More pending tasks", "cost against pending tasks"),
        ("topics", "More topics", "cost against topics"),
    ]:
        svg = plot.draw(shown, name)
        if svg:
            (folder / f"{name}.svg").write_text(svg)
            plots.append(f"## {title}\n\n![{alt}](performance/{name}.svg)")
    sections = [
        "# Performance",
        paragraph("""
            The performance of delayd on one machine, which it shares with the load generator, the
            receiver and Redis. `scripts/bench --write` writes this page;
            [`delayd-bench`](operations/observe.md#measure-it) runs one scenario. See also [missed
            targets](performance/limits.md), the [capacity model](performance/capacity.md) for
            larger deployments, and figures [under faults](RELIABILITY.md).
        """),
    ]
    if told["short"]:
        text = "These figures are of a short run, which only shows that the measurement works."
        sections.append(f"**{text}**")
    sections += [
        paragraph("""
            Each task of a figure was accepted, arrived exactly once, and not before its due
            millisecond. Throughput is measured in a closed loop, and lateness in an open one. A
            figure of several rounds is the median. ✓ and ✗ say whether the target was met, and –
            that nothing was measured. Of two ratios, the first is that of the embedded store.
        """),
        paragraph(files(told)),
        table(told),
        "## Parts and peers",
        parts(shown),
        paragraph("""
            The two peers do less for each task: BullMQ calls a function in its own process, and
            beanstalkd answers on an open socket.
        """),
    ]
    if told["defects"]:
        sections += ["Broken promises:", items(told["defects"])]
    absent = sorted(told.get("absent", {}).items())
    if absent:
        sections += ["Not measured:", items(f"{key}: {why}" for key, why in absent)]
    sections += [*plots, "## Machine", *machine(told, shown)]
    text = "\n\n".join(section for section in sections if section)
    (root / "docs" / "PERFORMANCE.md").write_text(text + "\n")


def files(told):
    """Where the stores have their files."""
    in_memory = told["machine"].get("files") in disks.IN_MEMORY
    text = f"Both stores have their files on {'tmpfs' if in_memory else 'a disk'}"
    text += ", unless a row says otherwise."
    shown = Told(told)
    alone, beside = (shown.figure(key, "requests_per_s") for key in ("bare 64", "steady bare"))
    if alone and beside:
        text += f"""
            Rows with † are of [another day](#machine), on which bare axum answered
            {number(beside)} requests/s instead of {number(alone)}: compare their ratios only.
        """
    return text


def items(lines):
    """A list of Markdown."""
    return "\n".join(paragraph(f"- {line}", indent="  ") for line in lines)


def machine(told, shown):
    """Paragraphs on the machine, and on when each group was measured."""
    had = told["machine"]
    days = {}
    for group, at in sorted(shown.moments().items()):
        days.setdefault(at.split()[0], []).append(group)
    moments = "; ".join(f"{day} {', '.join(groups)}" for day, groups in sorted(days.items()))
    return map(paragraph, [
        f"""
        {had['cpus']} processors ({had['model']}), {had['memory_gib']} GiB, {had['system']}; Redis
        {had['redis']}, AOF everysec; {had['delayd']}. Each content has 200 bytes.
        """,
        f"Last measured: {moments}.",
        """
        Ratios within one run are more reliable than single figures.
        """,
    ])

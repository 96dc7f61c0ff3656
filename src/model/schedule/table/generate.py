#!/usr/bin/env python3
"""Writes the table of nominal moments that table_tests.rs compares with.

    ./generate.py > table.txt

It shares nothing with the Rust code: the zone data are those of Python's zoneinfo (the machine's),
each rule is written a second time as a condition on a local time, and every minute of the span is
looked at. For each zone, span and rule the table has the number of moments, a SHA-256 over all of
them, and the moments near each clock change.
"""

import hashlib
from datetime import date, datetime, time, timedelta, timezone
from zoneinfo import ZoneInfo

UTC = timezone.utc
MINUTE = timedelta(minutes=1)

# The zones, and what their clocks did in 2025. Zone data of later years still change.
ZONES = [
    "America/New_York",  # one hour, at 02:00
    "America/Santiago",  # one hour, at midnight
    "America/Havana",  # one hour: 00:00 is skipped, and 01:00 goes back to 00:00
    "Europe/London",
    "Europe/Berlin",
    "Europe/Dublin",  # the winter has the negative change
    "Africa/Cairo",  # one hour, at midnight
    "Africa/Casablanca",  # back for Ramadan, and forth after it
    "Asia/Kolkata",  # no change, half an hour beside the others
    "Asia/Shanghai",  # no change
    "Australia/Lord_Howe",  # half an hour
    "Antarctica/Troll",  # two hours
]

# The rules for which each instant is looked at: `*` in hour or minute.
ELAPSED = {
    "*/30 * * * *": lambda t: t.minute % 30 == 0,
    "0 * * * *": lambda t: t.minute == 0,
    "*/20 2 * * *": lambda t: t.hour == 2 and t.minute % 20 == 0,
    "7 */6 * * SUN": lambda t: t.hour % 6 == 0 and t.minute == 7 and t.weekday() == 6,
}

# The rules with fixed times: the times of a day, and which days.
FIXED = {
    "30 2 * * *": ([time(2, 30)], lambda d: True),
    "0 0 * * *": ([time(0)], lambda d: True),
    "30 0 * * *": ([time(0, 30)], lambda d: True),
    "30 1 * * *": ([time(1, 30)], lambda d: True),
    "0,15,30 1-3 * * *": ([time(h, m) for h in (1, 2, 3) for m in (0, 15, 30)], lambda d: True),
    "20 30 2 * * 7": ([time(2, 30, 20)], lambda d: d.weekday() == 6),
    "0 3 L * *": ([time(3)], lambda d: (d + timedelta(days=1)).day == 1),
    "0 9 * * MON": ([time(9)], lambda d: d.weekday() == 0),
    "0 9 13 * FRI": ([time(9)], lambda d: d.day == 13 or d.weekday() == 4),
}
LEAP = {
    "0 0 29 2 *": ([time(0)], lambda d: (d.month, d.day) == (2, 29)),
    "30 2 29 2 *": ([time(2, 30)], lambda d: (d.month, d.day) == (2, 29)),
}


def local_of(moment, zone):
    """The local time of a moment, and whether it is the second pass of a repeated time."""
    there = moment.astimezone(zone)
    return there.replace(tzinfo=None, fold=0), there.fold


def offset(moment, zone):
    return moment.astimezone(zone).utcoffset()


def changes(zone, begin, end):
    """The moments at which the offset of the zone changes."""
    found, moment, step = [], begin, timedelta(hours=6)
    while moment < end:
        if offset(moment, zone) != offset(moment + step, zone):
            exact = moment
            while offset(exact, zone) == offset(moment, zone):
                exact += MINUTE
            found.append(exact)
        moment += step
    return found


def elapsed(zone, begin, end, matches):
    moment = begin
    while moment < end:
        local, _ = local_of(moment, zone)
        if matches(local):
            yield moment
        moment += MINUTE


def fixed(zone, begin, end, times, is_day):
    found = set()
    day = begin.date() - timedelta(days=2)
    while day <= end.date() + timedelta(days=2):
        for at in times if is_day(day) else []:
            local = datetime.combine(day, at)
            moment = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
            if local_of(moment, zone)[0] != local:
                # The local time is skipped: the first minute whose local time is later.
                moment = (moment - timedelta(days=2)).replace(second=0)
                while local_of(moment, zone)[0] < local:
                    moment += MINUTE
            found.add(moment)
        day += timedelta(days=1)
    return sorted(moment for moment in found if begin <= moment < end)


def line(moment, zone):
    local, second_pass = local_of(moment, zone)
    return f"{local.isoformat()}{'/1' if second_pass else ''} {int(moment.timestamp())}"


def section(name, begin, end, rule, moments):
    zone = ZoneInfo(name)
    lines = [line(moment, zone) for moment in moments]
    digest = hashlib.sha256("".join(text + "\n" for text in lines).encode()).hexdigest()
    span = f"{begin:%Y-%m-%d} {end:%Y-%m-%d}"
    print(f"= {name} | {span} | {rule} | {len(lines)} {digest}")
    near = changes(zone, begin, end) if end - begin < timedelta(days=400) else []
    for moment, text in zip(moments, lines):
        is_near = any(abs(moment - change) <= timedelta(hours=3) for change in near)
        if is_near or len(lines) < 20:
            print(text)


def year(name, first, last, leap=False):
    begin = datetime.combine(first, time(0), UTC)
    end = datetime.combine(last, time(0), UTC)
    zone = ZoneInfo(name)
    if not leap:
        for rule, matches in ELAPSED.items():
            section(name, begin, end, rule, list(elapsed(zone, begin, end, matches)))
    for rule, (times, is_day) in (LEAP if leap else FIXED).items():
        section(name, begin, end, rule, fixed(zone, begin, end, times, is_day))


def main():
    print("# Written by generate.py. A section: zone, span in UTC, rule, number and digest.")
    for name in ZONES:
        year(name, date(2025, 1, 1), date(2026, 1, 1))
        year(name, date(2005, 1, 1), date(2025, 1, 1), leap=True)
    # The clocks of Apia skipped a whole day, 30 December 2011.
    year("Pacific/Apia", date(2011, 12, 20), date(2012, 1, 10))
    # 2100 has no 29 February.
    year("Europe/Berlin", date(2090, 1, 1), date(2110, 1, 1), leap=True)


main()

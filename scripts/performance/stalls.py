"""Measures how long this machine stops a program that only reads the clock. No server can promise
that a command takes less."""

import multiprocessing
import time

NOTED_NS = 1_000_000


def _gaps(seconds):
    """The gaps of a millisecond or more between two readings of the clock, in ns."""
    gaps, now = [], time.monotonic_ns()
    end = now + int(seconds * 1e9)
    while now < end:
        before, now = now, time.monotonic_ns()
        if now - before >= NOTED_NS:
            gaps.append(now - before)
    return gaps


def measure(seconds):
    """Runs one such program on each processor, with no other load."""
    programs = multiprocessing.cpu_count()
    with multiprocessing.Pool(programs) as pool:
        gaps = [gap for found in pool.map(_gaps, [seconds] * programs) for gap in found]
    return {"longest_ms": max(gaps, default=NOTED_NS) / 1e6, "over_1_ms_per_s": len(gaps) / seconds}

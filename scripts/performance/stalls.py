"""How long this machine stops a program that only reads the clock.

No command of a server can be faster than that.
"""

import multiprocessing
import time

NOTED_NS = 1_000_000


def _gaps(seconds):
    """The gaps of at least a millisecond between two readings of the clock, in ns."""
    gaps, now = [], time.monotonic_ns()
    end = now + int(seconds * 1e9)
    while now < end:
        before, now = now, time.monotonic_ns()
        if now - before >= NOTED_NS:
            gaps.append(now - before)
    return gaps


def measure(seconds):
    """Runs one such program per CPU core for so many seconds."""
    programs = multiprocessing.cpu_count()
    with multiprocessing.Pool(programs) as pool:
        gaps = [gap for found in pool.map(_gaps, [seconds] * programs) for gap in found]
    return {"longest_ms": max(gaps, default=NOTED_NS) / 1e6, "over_1_ms_per_s": len(gaps) / seconds}

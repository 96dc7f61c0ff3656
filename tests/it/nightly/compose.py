"""Adds tasks for compose.sh, and compares them with what the receiver got.

    python3 compose.py add FOLDER      until FOLDER/end exists; writes FOLDER/added
    python3 compose.py check FOLDER    reads FOLDER/added and FOLDER/received, prints the table

An add that fails is repeated under its key until it is confirmed.
"""

import collections
import itertools
import json
import random
import re
import sys
import threading
import time
import urllib.request
from pathlib import Path

FOLDER = Path(sys.argv[2])
URL = "http://127.0.0.1:8080/delay/task/add"
# In these phases no add may fail.
FLAWLESS = ("start", "instance_killed", "restarts", "recreation")


def post(number, body):
    """Sends an add over a connection of its own. Returns the answer's body, or why it failed."""
    headers = {"Content-Type": "application/json", "Idempotency-Key": f"compose-{number}"}
    try:
        request = urllib.request.Request(URL, body, headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer), None
    except urllib.error.HTTPError as error:
        return None, f"{error.code} {error.read(300)}"
    except OSError as error:
        return None, repr(error)


def add():
    numbers, ids, lock = itertools.count(1), {}, threading.Lock()
    phases = collections.defaultdict(lambda: {"confirmed": 0, "failed": 0, "slowest": 0.0})

    def one_after_another():
        while not (FOLDER / "end").exists():
            with lock:
                number = next(numbers)
            body = json.dumps({
                "topic": "compose",
                "mode": "push",
                "delay": f"{random.randrange(3000)}ms",
                "content": {"sn": "message.call", "url": "/add", "number": f"<{number}>"},
            }).encode()
            answer = None
            while not answer:
                phase, began = (FOLDER / "phase").read_text(), time.monotonic()
                answer, failure = post(number, body)
                with lock:
                    row = phases[phase]
                    row["slowest"] = max(row["slowest"], time.monotonic() - began)
                    row["confirmed" if answer else "failed"] += 1
                if failure:
                    print(f"{phase}: add {number}: {failure}", file=sys.stderr)
                    time.sleep(0.3)
            ids[number] = answer["task_id"]
            time.sleep(0.3)

    threads = [threading.Thread(target=one_after_another, daemon=True) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (FOLDER / "added").write_text(json.dumps({"ids": ids, "phases": phases}))


def check():
    added = json.loads((FOLDER / "added").read_text())
    ids, phases = added["ids"], added["phases"]
    received = collections.defaultdict(list)
    for line in (FOLDER / "received").read_text().splitlines():
        if number := re.search(r"<(\d+)>", line):
            received[number[1]].append(re.search(r"\b\d{16,}\b", line)[0])

    problems = [f"add {number} was not delivered" for number in ids if not received[number]]
    for number, task_id in ids.items():
        others = set(received[number]) - {str(task_id)}
        if others:
            problems.append(f"add {number} has the task {task_id}, and was delivered as {others}")
    for phase in FLAWLESS:
        # An empty phase would prove nothing.
        row = phases.get(phase, {"confirmed": 0, "failed": 0})
        if row["failed"] or row["confirmed"] < 20:
            problems.append(f"{phase}: {row['confirmed']} confirmed, {row['failed']} failed")
    if problems:
        sys.exit("\n".join(problems))

    print(f"{'phase':<16}{'confirmed':>10}{'failed':>8}{'slowest':>9}")
    for phase, row in phases.items():
        print(f"{phase:<16}{row['confirmed']:>10}{row['failed']:>8}{row['slowest']:>7.1f} s")
    deliveries = sum(map(len, received.values()))
    print(f"{len(ids)} confirmed, {len(received)} delivered, {deliveries - len(received)} again")


{"add": add, "check": check}[sys.argv[1]]()

"""Adds tasks for compose.sh, and compares them with what the receiver got.

    python3 compose.py add FOLDER        until FOLDER/end exists; writes FOLDER/ids, prints a table
    python3 compose.py compare FOLDER    compares FOLDER/ids with FOLDER/received

An add that fails is repeated under its key until it is confirmed. FOLDER/phase is the name of the
row in which it counts.
"""

import collections
import http.client
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
# Only without Redis may an add fail.
MAY_FAIL = ("redis_killed",)
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def post(number, body):
    """Sends an add over a connection of its own. Returns the answer's body, or why it failed."""
    headers = {"Content-Type": "application/json", "Idempotency-Key": f"compose-{number}"}
    try:
        request = urllib.request.Request(URL, body, headers)
        with OPENER.open(request, timeout=30) as answer:
            return json.load(answer), None
    except urllib.error.HTTPError as error:
        return None, f"{error.code} {error.read(300)}"
    except (OSError, http.client.HTTPException) as error:
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
                    time.sleep(0.1)
            ids[number] = answer["task_id"]
            time.sleep(0.1)

    threads = [threading.Thread(target=one_after_another, daemon=True) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (FOLDER / "ids").write_text(json.dumps(ids))

    print(f"{'phase':<16}{'confirmed':>10}{'failed':>8}{'slowest':>9}")
    for phase, row in phases.items():
        print(f"{phase:<16}{row['confirmed']:>10}{row['failed']:>8}{row['slowest']:>7.1f} s")
    failed = [phase for phase, row in phases.items() if row["failed"] and phase not in MAY_FAIL]
    # A phase without adds would prove nothing.
    few = [phase for phase, row in phases.items() if row["confirmed"] < 20]
    if failed or few:
        sys.exit(f"adds failed in {failed}; there were too few in {few}")


def compare():
    ids = json.loads((FOLDER / "ids").read_text())
    received = collections.defaultdict(list)
    for line in (FOLDER / "received").read_text().splitlines():
        if number := re.search(r"<(\d+)>", line):
            received[number[1]].append(re.search(r"\b\d{16,}\b", line)[0])

    missing = [number for number in ids if number not in received]
    deliveries = sum(map(len, received.values()))
    print(
        f"{len(ids)} confirmed, {len(ids) - len(missing)} delivered,"
        f" {deliveries - len(received)} deliveries more than once"
    )
    for number, task_id in ids.items():
        if others := set(received[number]) - {str(task_id)}:
            sys.exit(f"add {number} has the task {task_id}, and was delivered as {others}")
    if missing:
        sys.exit(f"not delivered: {missing[:20]}")


{"add": add, "compare": compare}[sys.argv[1]]()

"""Runs the capacity model, compares it with a real Redis, and draws its plots. See
scripts/capacity."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import capacity_plot
import capacity_real

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "performance"
PAGE = PAGES / "capacity.md"
PROGRAM = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "delayd"
MODEL = "cargo test --release --locked --bench capacity -- curves"


def run_model(only):
    """The figures of the model by the names of their series."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figures.json"
        environment = os.environ | {"CAPACITY_FIGURES": str(path), "CAPACITY_ONLY": only}
        subprocess.run(MODEL.split(), cwd=ROOT, env=environment, check=True)
        return json.loads(path.read_text())


def sizes_of(row):
    return row["rate"], row["lanes"], row["instances"]


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def curves(rows):
    """The claims for each task, the utilization and the lateness of some sizes. The plots have
    all."""
    def cells(row):
        if row["is_overloaded"]:
            late = ["overloaded", "–", "–"]
        else:
            late = [f"{row['utilization'] * 100:.1f} %"]
            late += [f"{row[f'lateness_p{percent}_ms']:.1f}" for percent in (50, 99)]
        calls = [f"{row[figure]:.2f}" for figure in ("claims_a_task", "calls_a_task")]
        return [f"{row['rate']:g}", row["lanes"], row["instances"], *calls, *late]

    head = ["tasks/s", "lanes", "instances", "claims a task", "all calls a task",
            "utilization", "lateness p50, ms", "p99, ms"]
    shown = [row for row in rows if row["instances"] in (1, 50)]
    return table(head, [cells(row) for row in sorted(shown, key=sizes_of)])


def comparison(model, real):
    """Model and program side by side."""
    measured = {sizes_of(row): row for row in real}

    def pair(row, figure, scale=1, digits=2):
        return [f"{source[figure] * scale:.{digits}f}" for source in (row, measured[sizes_of(row)])]

    def cells(row):
        cpu = measured[sizes_of(row)]["cpu"] * 100
        return [
            f"{row['rate']:g}", row["lanes"], row["instances"], *pair(row, "claims_a_task"),
            *pair(row, "calls_a_task"), *pair(row, "utilization", 100, 1), f"{cpu:.1f}",
            *pair(row, "lateness_p50_ms", 1, 1),
        ]

    head = ["tasks/s", "lanes", "instances"]
    names = ("claims a task", "all calls a task", "% of the time in scripts")
    for name in names:
        head += [f"{name}: model", "real"]
    head += ["Redis' thread, real, % of a core", "lateness p50, ms: model", "real"]
    shown = [row for row in model if sizes_of(row) in measured and row["instances"] == 4]
    return table(head, [cells(row) for row in sorted(shown, key=sizes_of)])


def sizing(rows):
    """How many servers each deployment needs: the number that suffices, and the one before it."""
    head = ["tasks/s", "instances", "lanes", "servers", "claims a task", "busiest server"]
    rates = dict.fromkeys(row["rate"] for row in rows)
    shown = [row for rate in rates for row in [row for row in rows if row["rate"] == rate][-2:]]
    cells = [
        [f"{row['rate']:g}", row["instances"], row["lanes"], row["servers"],
         f"{row['claims_a_task']:.2f}", f"{row['utilization'] * 100:.0f} %"]
        for row in shown
    ]
    return table(head, cells)


def fill(page, name, text):
    """The page with this text between the two comments of this name."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, rest = page.split(begin)
    return f"{before}{begin}\n{text}\n\n{end}{rest.split(end)[1]}"


def main():
    parser = argparse.ArgumentParser(prog="scripts/capacity")
    parser.add_argument("--write", type=Path, metavar="FILE")
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--page", type=Path, metavar="FILE")
    parser.add_argument("--only", default="curves,sizing,check")
    options = parser.parse_args()
    kept = options.page or options.write
    told = json.loads(kept.read_text()) if kept and kept.exists() else {}
    if not options.page:
        told |= run_model(options.only)
    if options.real:
        told["real"] = list(capacity_real.measure_all(PROGRAM))
    tables = {"curves": curves(told["curves"]), "sizing": sizing(told["sizing"])}
    if "real" in told:
        tables["comparison"] = comparison(told["check"], told["real"])
    print("\n\n".join(tables.values()))
    if options.write:
        options.write.write_text(json.dumps(told, indent=1) + "\n")
    if kept:
        page = PAGE.read_text()
        for name, text in tables.items():
            page = fill(page, name, text)
        PAGE.write_text(page)
        for name, plot in capacity_plot.draw_all(told["curves"]):
            (PAGES / f"capacity-{name}.svg").write_text(plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())

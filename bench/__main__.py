"""`make bench`: run every benchmark, print one table, write bench/out/results.json."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import platform
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.rows import Row

SUITES = (
    *("jail", "guards", "whole_pure", "whole_numpy", "whole_torch", "libraries"),
    *("codec", "log_appends", "log_reading", "log_witnesses", "verify_admission"),
    *("validate", "submit", "scheduler", "calls", "threads", "frozen"),
    *("console_watchers",),
    *("population", "stock", "hostile"),
    *("learn_transport", "learn_codecs", "learn_methods", "learn_jail", "learn_step"),
    *("learn_robust", "learn_ssp", "learn_reduce", "learn_tensor", "learn_staged"),
    *("learn_pipeline", "learn_cell", "learn_traffic", "learn_traffic_live"),
)
OUTPUT = Path(__file__).parent / "out" / "results.json"


MARKS = {True: "met", False: "not met", None: ""}


def render_programs(rows: list[Row]) -> Table:
    """Return the table of programs: every side as a ratio to plain CPython."""
    peers = list(dict.fromkeys(peer for row in rows for peer in row.others))
    table = Table(title="programs: times plain CPython's time", title_justify="left")
    for heading in ("program", "plain ms", "ours", *peers, "to reach", ""):
        table.add_column(heading, justify="left" if heading == "program" else "right")
    for row in rows:
        others = [
            _show_ratio(row.others.get(peer), peer in row.others) for peer in peers
        ]
        plain = f"{row.peer:,.0f}" if row.peer and row.unit == "ms" else ""
        ours = f"{row.ratio:.3f}"
        table.add_row(row.name, plain, ours, *others, row.target, MARKS[row.met])
    return table


def _show_ratio(ratio: float | None, tried: bool) -> str:
    if ratio is None:
        return "cannot" if tried else ""
    return f"{ratio:.3f}" if ratio < 2 else f"{ratio:,.1f}"


def render_table(rows: list[Row]) -> Table:
    """Return the table of everything else."""
    table = Table(title="stoilo, measured now, medians", title_justify="left")
    for heading in ("what", "ours", "against", "peer", "ratio", "to reach", ""):
        table.add_column(heading, overflow="fold")
    for row in rows:
        mark = MARKS[row.met]
        peer = "" if row.peer is None else f"{row.peer:,.4g} {row.unit}"
        ratio = "" if row.ratio is None else f"{row.ratio:.3g} {row.ratio_of}"
        ours = f"{row.ours:,.4g} {row.unit}"
        table.add_row(row.name, ours, row.peer_name, peer, ratio, row.target, mark)
    return table


def show(rows: list[Row]) -> None:
    """Print both tables."""
    console = Console(width=130)
    programs = [row for row in rows if row.ratio_of == "of plain"]
    rest = [row for row in rows if row not in programs]
    for part, render in ((programs, render_programs), (rest, render_table)):
        if part:
            console.print(render(part))


def main() -> int:
    """Run the suites named on the command line, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", default=SUITES, help=f"any of {SUITES}")
    parser.add_argument("--json", action="store_true", help="print JSON instead")
    arguments = parser.parse_args()
    rows: list[Row] = []
    load = os.getloadavg()
    for suite in arguments.suites:
        print(f"measuring {suite} …", file=sys.stderr, flush=True)
        started = time.perf_counter()
        rows += importlib.import_module(f"bench.{suite}").measure()
        took = time.perf_counter() - started
        print(f"  {took:.0f} s", file=sys.stderr, flush=True)
    report = {
        "time": int(time.time()),
        "machine": platform.platform(),
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "load": [load[0], os.getloadavg()[0]],
        "rows": [dataclasses.asdict(row) for row in rows],
    }
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(report, indent=2) + "\n")
    if arguments.json:
        print(json.dumps(report))
    else:
        show(rows)
        print(
            f"{platform.platform()}, {os.cpu_count()} processors; load "
            f"{load[0]:.1f} before, {os.getloadavg()[0]:.1f} after: the ratios are of "
            "runs in turn, the absolute numbers are this machine's at this moment"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

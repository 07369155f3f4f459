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
    *("codec", "guards", "jail", "log_appends", "verify_admission"),
    *("validate", "submit"),
)
OUTPUT = Path(__file__).parent / "out" / "results.json"


def render_table(rows: list[Row]) -> Table:
    """Return the table a person reads."""
    table = Table(title="stoilo, measured now, medians", title_justify="left")
    for heading in ("what", "ours", "against", "peer", "ratio", "to reach", ""):
        table.add_column(heading, overflow="fold")
    for row in rows:
        mark = {True: "met", False: "not met", None: ""}[row.met]
        peer = "" if row.peer is None else f"{row.peer:,.4g} {row.unit}"
        ratio = "" if row.ratio is None else f"{row.ratio:.3g} {row.ratio_of}"
        ours = f"{row.ours:,.4g} {row.unit}"
        table.add_row(row.name, ours, row.peer_name, peer, ratio, row.target, mark)
    return table


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
        Console(width=130).print(render_table(rows))
        print(
            f"{platform.platform()}, {os.cpu_count()} processors; load "
            f"{load[0]:.1f} before, {os.getloadavg()[0]:.1f} after: the ratios are of "
            "runs in turn, the absolute numbers are this machine's at this moment"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

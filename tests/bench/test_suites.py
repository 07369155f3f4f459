"""Every suite runs, small; what it measures is no test's business."""

import importlib
import json
import sys

import pytest

from bench import __main__ as bench
from bench.rows import Row
from bench.submit import Sizes

SMALL = {
    "codec": {"layers": {"fc": (4, 8)}},
    "guards": {"rounds": 1},
    "jail": {"warm_runs": 1, "cold_runs": 1},
    "log_appends": {"rounds": 1, "each": 2, "peer_each": 1},
    "verify_admission": {"leaves": 64},
    "validate": {"runs": 1},
    "submit": {"sizes": Sizes(cached=3, uncached=3, peer=1, alone=1, together=2)},
}


def is_well_formed(row: Row) -> bool:
    numbers = row.ours > 0 and (row.peer is None or row.peer > 0)
    compared = (row.peer is None) == (row.ratio is None)
    return bool(row.name and row.unit) and numbers and compared and judged(row)


def judged(row: Row) -> bool:
    return bool(row.target) == (row.met is not None)


@pytest.mark.parametrize(
    "suite", [name for name in bench.SUITES if name not in {"submit", "guards"}]
)
def test_suite_returns_well_formed_rows(suite):
    rows = importlib.import_module(f"bench.{suite}").measure(**SMALL[suite])
    assert rows
    assert all(map(is_well_formed, rows))


@pytest.mark.slow
@pytest.mark.parametrize("suite", ["submit", "guards"])
def test_long_suite_returns_well_formed_rows(suite):
    rows = importlib.import_module(f"bench.{suite}").measure(**SMALL[suite])
    assert all(map(is_well_formed, rows))


def test_every_suite_has_a_small_size():
    assert set(SMALL) == set(bench.SUITES)


@pytest.mark.parametrize(
    "row",
    [
        Row("", 1.0, "ms"),
        Row("x", 0.0, "ms"),
        Row("x", 1.0, "ms", peer=2.0),
        Row("x", 1.0, "ms", target="<= 2"),
    ],
)
def test_malformed_row_is_seen(row):
    assert not is_well_formed(row)


def test_report_holds_every_row_and_the_load(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bench, "OUTPUT", tmp_path / "out" / "results.json")
    monkeypatch.setattr(sys, "argv", ["bench", "verify_admission", "--json"])
    assert bench.main() == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "out" / "results.json").read_text())
    assert len(printed["load"]) == 2
    assert {"name", "ours", "peer", "ratio", "target", "met"} <= set(printed["rows"][0])

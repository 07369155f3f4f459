"""Every suite runs, small; what it measures is no test's business."""

import asyncio
import importlib
import json
import sys

import pytest

from bench import __main__ as bench
from bench import learn_jail
from bench.console_watchers import Sizes as WatchSizes
from bench.corpus import KERNELS, NUMPY, TORCH, Program
from bench.frozen import budget_ms
from bench.hostile import Sizes as HostileSizes
from bench.learn_ssp import Sizes as SspSizes
from bench.learn_staged import Case
from bench.rows import Row
from bench.simulation.scenario import Scenario
from bench.stock import Sizes as StockSizes
from bench.submit import Sizes
from stoilo.learn import LocalBackend

SMALL = {
    "codec": {"layers": {"fc": (4, 8)}},
    "guards": {"rounds": 1, "programs": (Program("queens", 5, 3),)},
    "whole_pure": {"rounds": 1, "programs": (Program("queens", 5),)},
    "whole_numpy": {"rounds": 1, "programs": (Program("numpy_logistic", 2),)},
    "whole_torch": {"rounds": 1, "programs": (Program("torch_tensors", 2),)},
    "libraries": {"rounds": 1, "programs": {"scipy": (Program("scipy_signals", 1),)}},
    "jail": {"warm_runs": 1, "cold_runs": 1},
    "log_appends": {"rounds": 1, "each": 2, "peer_each": 1},
    "log_reading": {"leaves": 600, "few": 300},
    "log_witnesses": {"calls": 2, "rest_s": 0.0},
    "verify_admission": {"leaves": 64},
    "validate": {"runs": 1},
    "scheduler": {"hosts": 4, "rounds": 1},
    "calls": {"plain": 2, "mapped": 20, "real": False},
    "threads": {"runs": 1},
    "frozen": {"runs": 1, "flavors": ("pure",), "large": ""},
    "population": {"scenario": Scenario(hosts=200, tasks=400, cheats=0.3)},
    "stock": {"sizes": StockSizes(batch=3, peers=1, calls=1)},
    "learn_tensor": {"steps": 1},
    "learn_transport": {"layers": {"fc": (64, 64)}, "runs": 1},
    "learn_codecs": {"epochs": 1, "seeds": 1},
    "learn_methods": {"seeds": (0,), "replicas": (4,)},
    "learn_jail": {"methods": ("fedavg",), "accuracy": 0.5, "widths": (4,), "steps": 1},
    "learn_step": {"widths": (4,), "steps": 1},
    "learn_robust": {"seeds": (0,), "answers": 6, "steps": 3, "epochs": 1},
    "learn_ssp": {"seeds": (0,), "sizes": SspSizes(0.1, volunteers=2, slack=0.2)},
    "learn_staged": {
        "cases": (Case("small", 4, 2, groups=4, steps=2),),
        "vocabulary": {"words": 4, "width": 2, "tokens": 3, "shards": 2},
        "rounds": 1,
    },
    "learn_cell": {"seeds": (0,), "row_s": 1e-5},
    "learn_pipeline": {"batches": 4, "rounds": 1},
    "learn_traffic_live": {"seeds": (0,), "nodes": 2, "size": 1 << 16},
    "learn_traffic": {"sizes": ((4, range(2), 3),), "searched": 4},
    "learn_reduce": {"cases": ((2, 0.1),), "runs": 1},
    "hostile": {"sizes": HostileSizes(2, 4, 8, 2, 1, 3)},
    "console_watchers": {"sizes": WatchSizes(2, rounds=1, together=2, alone=1)},
    "submit": {"sizes": Sizes(cached=3, uncached=3, peer=1, alone=1, together=2)},
}


LONG = {
    *(
        "calls",
        "console_watchers",
        "frozen",
        "hostile",
        "submit",
        "threads",
        "whole_torch",
    ),
    *(
        "learn_cell",
        "learn_jail",
        "learn_methods",
        "learn_pipeline",
        "learn_ssp",
        "learn_staged",
        "learn_step",
        "learn_traffic_live",
        "log_reading",
        "log_witnesses",
    ),
}


def is_well_formed(row: Row) -> bool:
    numbers = row.ours > 0 and (row.peer is None or row.peer > 0)
    compared = (row.peer is None) == (row.ratio is None)
    return bool(row.name and row.unit) and numbers and compared and judged(row)


def judged(row: Row) -> bool:
    return bool(row.target) == (row.met is not None)


@pytest.mark.parametrize("suite", [name for name in bench.SUITES if name not in LONG])
def test_suite_returns_well_formed_rows(suite):
    rows = importlib.import_module(f"bench.{suite}").measure(**SMALL[suite])
    assert rows
    assert all(map(is_well_formed, rows))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("suite", sorted(LONG))
def test_long_suite_returns_well_formed_rows(suite):
    rows = importlib.import_module(f"bench.{suite}").measure(**SMALL[suite])
    assert all(map(is_well_formed, rows))


async def reach_here(method):
    async with LocalBackend(learn_jail.VOLUNTEERS) as threads:
        return await learn_jail.reach(method, threads, learn_jail.ACCURACY)


@pytest.mark.slow
@pytest.mark.parametrize("method", learn_jail.WISHES)
def test_method_of_the_bench_reaches_the_accuracy_it_is_timed_to(method):
    found = asyncio.run(reach_here(method))
    assert found.accuracy >= learn_jail.ACCURACY


def test_budget_of_a_start_grows_with_the_tree():
    assert [budget_ms(megabytes * 10**6) for megabytes in (0, 50, 100)] == [
        *(150, 250, 350)
    ]


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


def test_corpus_is_as_large_as_the_targets_say():
    assert (len(KERNELS), len(NUMPY), len(TORCH)) >= (10, 8, 4)
    assert all(program.source for program in (*KERNELS, *NUMPY, *TORCH))


def test_peer_that_cannot_is_named_so_and_no_peer_is_blank():
    row = Row("x", 1.0, "ms", ratio=1.0, ratio_of="of plain", others={"a": None})
    table = bench.render_programs([row, Row.of_mean("mean", 1.0, 1.05, {"b": 3.0})])
    cells = [list(column.cells) for column in table.columns]
    assert cells[3] == ["cannot", ""]
    assert cells[4] == ["", "3.0"]

"""What a live bench asks of the rows; the bench itself needs a live project."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from sqlalchemy import text

sys.path.insert(0, str(Path(__file__).parents[1] / "server" / "engines"))
sys.path.insert(0, str(Path(__file__).parents[1] / "server" / "engines" / "stock"))

from stock_bench import StockBench

from tests.support.engine import make_spec
from tests.support.server import ManualClock
from tests.support.stocklive import OWN_PENDING


@pytest.mark.slow
def test_bench_is_at_rest_only_once_outcomes_are_delivered(tmp_path: Path) -> None:
    bench = StockBench(tmp_path / "project", ManualClock(1_800_000_000))

    def pending() -> int:
        values = {"mine": "w%", "now": bench.engine.now(), "unused": 1}
        with bench.engine._database.read() as connection:
            return int(connection.scalar(text(OWN_PENDING), values) or 0)

    bench.engine.create_workunits([make_spec("w_1")])
    assert pending() == 0
    bench.engine.cancel("w_1")
    assert pending() == 1
    bench.settle()
    assert pending() == 0
    bench.close()

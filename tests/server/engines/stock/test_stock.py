from __future__ import annotations

import pytest
from contract import EngineContract
from stock_bench import StockBench

from stoilo.server.engines.interface import Engine


class TestStockEngine(EngineContract):
    @pytest.fixture
    def bench(self, tmp_path, clock):
        made = StockBench(tmp_path / "project", clock)
        yield made
        made.close()

    def test_is_an_engine(self, bench):
        assert isinstance(bench.engine, Engine)


@pytest.mark.slow
@pytest.mark.parametrize(
    "promise",
    [
        EngineContract.test_cheat_is_outvoted_by_a_third,
        EngineContract.test_refusal_by_opt_in_is_not_counted,
        EngineContract.test_restart_loses_nothing,
        EngineContract.test_status_says_what_is_missing,
    ],
)
def test_promise_holds_on_mariadb(tmp_path, clock, mariadb, promise):
    bench = StockBench(tmp_path / "project", clock, mariadb.create_database())
    promise(TestStockEngine(), bench)
    bench.close()

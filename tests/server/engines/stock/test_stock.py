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

from __future__ import annotations

import pytest
from contract import EngineContract
from engine_bench import EmbeddedBench

from stoilo.server.engines.interface import Engine


class TestEmbeddedEngine(EngineContract):
    @pytest.fixture
    def bench(self, tmp_path, clock):
        made = EmbeddedBench(tmp_path / "engine", clock)
        yield made
        made.engine.close()

    def test_is_an_engine(self, bench):
        assert isinstance(bench.engine, Engine)


class TestEmbeddedEngineOnMariaDB(EngineContract):
    @pytest.fixture
    def bench(self, tmp_path, clock, mariadb_url):
        made = EmbeddedBench(tmp_path / "engine", clock, database_url=mariadb_url)
        yield made
        made.engine.close()

from __future__ import annotations

import pytest

from stoilo.server.engines.embedded.engine import EmbeddedEngine, EngineOptions
from stoilo.server.engines.embedded.scheduler import Pace
from stoilo.testing.server import ManualClock

FAST = EngineOptions(idle_s=0.02, pace=Pace(next_rpc_delay_s=0.05))


@pytest.fixture
def clock():
    return ManualClock(1_800_000_000)


@pytest.fixture
def engine(tmp_path, clock):
    made = EmbeddedEngine(tmp_path / "engine", options=FAST, clock=clock)
    yield made
    made.close()

"""The engine contract with BOINC's own scheduler, transitioner, validator and assimilator."""

from __future__ import annotations

import pytest
from contract import EngineContract

pytestmark = pytest.mark.slow


class TestLiveStock(EngineContract):
    pass

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # bench and contract, beside us

from stoilo.testing.server import ManualClock


@pytest.fixture
def clock():
    return ManualClock(1_800_000_000)

from pathlib import Path

import pytest

from stoilo.testing.gate import GateBench


@pytest.fixture
def gate(tmp_path: Path) -> GateBench:
    """A gate whose keys a signer can serve."""
    return GateBench(tmp_path / "root")

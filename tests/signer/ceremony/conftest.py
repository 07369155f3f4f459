import shutil
from pathlib import Path

import pytest

from tests.support.ceremony import CeremonyBench


@pytest.fixture(scope="session")
def published_bench(tmp_path_factory: pytest.TempPathFactory) -> CeremonyBench:
    """A project whose first release is published; copies need no second ceremony."""
    bench = CeremonyBench(tmp_path_factory.mktemp("ceremony") / "release")
    bench.publish(bench.first())
    return bench


@pytest.fixture
def bench(published_bench: CeremonyBench, tmp_path: Path) -> CeremonyBench:
    """A published project of its own for each test."""
    shutil.copytree(published_bench.directory, tmp_path / "release")
    return published_bench.at(tmp_path / "release")


@pytest.fixture
def fresh(tmp_path: Path) -> CeremonyBench:
    """A project before its first release."""
    return CeremonyBench(tmp_path / "release")

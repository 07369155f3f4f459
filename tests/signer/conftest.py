import shutil
from pathlib import Path

import pytest

from tests.support.ceremony import CeremonyBench
from tests.support.gate import GateBench


@pytest.fixture(scope="session")
def gate_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys and metadata, made durably once; copies need no disk flush."""
    directory = tmp_path_factory.mktemp("template") / "root"
    GateBench(directory)
    return directory


@pytest.fixture
def gate(tmp_path: Path, gate_template: Path) -> GateBench:
    """A gate of its own for each test."""
    shutil.copytree(gate_template, tmp_path / "root")
    return GateBench(tmp_path / "root")


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

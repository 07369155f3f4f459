import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.gate import GateBench
from tests.support.volunteers import VolunteerWorld


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


@pytest.fixture
def world(tmp_path: Path) -> Iterator[VolunteerWorld]:
    """A project that volunteers can join."""
    made = VolunteerWorld(tmp_path)
    yield made
    made.close()

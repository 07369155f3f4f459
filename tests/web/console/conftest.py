from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.console import ConsoleBench, Door, open_door
from tests.support.serverbench import make_bench

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    with open_door() as opened:
        yield opened


@pytest.fixture(scope="module")
def shared(door: Door, tmp_path_factory: pytest.TempPathFactory) -> ConsoleBench:
    """Serve a console for a file of tests, each of which has accounts of its own."""
    return door.show(make_bench(tmp_path_factory.mktemp("console")))


@pytest.fixture
def served(door: Door, tmp_path: Path) -> ConsoleBench:
    """Serve a console; the account `ada` is a researcher's."""
    return door.show(make_bench(tmp_path))

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from stoilo.server.engines.embedded.accounts.roster import open_roster
from tests.support.console import ConsoleBench, Door, open_door
from tests.support.reviews import Desk, make_desk, reviewed
from tests.support.serverbench import make_bench

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    with open_door() as opened:
        yield opened


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Return the bench of `shared`: a review is wanted at the level `numeric`."""
    return make_desk(tmp_path_factory.mktemp("console"), reviewed("numeric"))


@pytest.fixture(scope="module")
def shared(door: Door, desk: Desk) -> Iterator[ConsoleBench]:
    """Serve a console for a file of tests, each of which has accounts of its own."""
    folder = desk.bench.directory / "engine"
    folder.mkdir(mode=0o700)
    with contextlib.closing(open_roster(folder)) as roster:
        yield door.show(desk.bench, roster)


@pytest.fixture
def served(door: Door, tmp_path: Path) -> ConsoleBench:
    """Serve a console; the account `ada` is a researcher's."""
    return door.show(make_bench(tmp_path))

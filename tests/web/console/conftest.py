from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

import pytest

from stoilo.server.engines.embedded.accounts.roster import open_roster
from tests.support.console import ConsoleBench, Door, open_door
from tests.support.reviews import Desk, make_desk, reviewed
from tests.support.serverbench import make_bench
from tests.support.traffic import Told, make_record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    with open_door() as opened:
        yield opened


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """Serve the record of twelve nodes."""
    served = Told(tmp_path_factory.mktemp("dispatcher"), make_record())
    thread = threading.Thread(target=served.run)
    thread.start()
    yield served
    served.close()
    thread.join()


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Return the bench of `shared`: a review is wanted at the level `numeric`."""
    return make_desk(tmp_path_factory.mktemp("console"), reviewed("numeric"))


@pytest.fixture(scope="module")
def shared(door: Door, desk: Desk, told: Told) -> Iterator[ConsoleBench]:
    """Serve a console for a file of tests, each of which has accounts of its own."""
    folder = desk.bench.directory / "engine"
    folder.mkdir(mode=0o700)
    with contextlib.closing(open_roster(folder)) as roster:
        yield door.show(desk.bench, roster, dispatcher=str(told.file))


@pytest.fixture
def served(door: Door, tmp_path: Path) -> ConsoleBench:
    """Serve a console; the account `ada` is a researcher's."""
    return door.show(make_bench(tmp_path))

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.console import ConsoleBench, serve_console
from tests.support.serverbench import make_bench

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleBench]:
    """Serve a console for a file of tests, each of which has accounts of its own."""
    with serve_console(make_bench(tmp_path_factory.mktemp("console"))) as console:
        yield console


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ConsoleBench]:
    """Serve a console; the account `ada` is a researcher's."""
    with serve_console(make_bench(tmp_path)) as console:
        yield console

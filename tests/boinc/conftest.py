"""Debian's BOINC client against `stoilo up`, with programs frozen once for all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoilo.core.errors import InternalError
from stoilo.testing.boincpackage import BOINC
from stoilo.testing.boincproject import BoincProject, freeze_project


@pytest.fixture(scope="session")
def frozen(
    request: pytest.FixtureRequest, own_temporary_directory: Path
) -> Iterator[Path]:
    """Return a project's data directory; `numeric` is in it where slow tests run."""
    if not BOINC.exists():
        pytest.skip("needs boinc-client")
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    slow = any(item.get_closest_marker("slow") for item in request.session.items)
    folder = own_temporary_directory / "frozen"
    folder.mkdir()
    try:
        freeze_project(folder / "data", ("pure", "numeric") if slow else ("pure",))
        yield folder / "data"
    except InternalError as error:
        if "STO-F015" in str(error):
            pytest.skip(f"needs binutils and libpython3.11: {error}")
        raise
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="package")
def project(frozen: Path) -> Iterator[BoincProject]:
    with BoincProject(frozen) as made:
        yield made

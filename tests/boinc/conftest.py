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
    own_temporary_directory: Path,
) -> Iterator[Path]:
    """Return a project's data directory, with all that is frozen in a minute or two."""
    if not BOINC.exists():
        pytest.skip("needs boinc-client")
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    folder = own_temporary_directory / "frozen"
    folder.mkdir()
    try:
        freeze_project(folder / "data", ("pure", "numeric"))
        yield folder / "data"
    except InternalError as error:
        if "STO-F015" in str(error):
            pytest.skip(f"needs binutils and libpython3.11: {error}")
        raise
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def project(frozen: Path) -> Iterator[BoincProject]:
    with BoincProject(frozen) as made:
        yield made

"""Debian's BOINC client against `stoilo up`, with programs frozen once for all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoilo.core.errors import InternalError
from tests.support.boincpackage import BOINC
from tests.support.boincproject import BoincProject, freeze_project
from tests.support.flavorparts import publish_flavor


@pytest.fixture(scope="session")
def frozen(
    own_temporary_directory: Path,
) -> Iterator[Path]:
    """Return a project's data directory, with what is frozen for `pure` tasks."""
    if not BOINC.exists():
        pytest.skip("needs boinc-client")
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    folder = own_temporary_directory / "frozen"
    folder.mkdir()
    try:
        freeze_project(folder / "data")
        yield folder / "data"
    except InternalError as error:
        if "STO-F011" in str(error):
            pytest.skip(f"needs binutils and libpython3.11: {error}")
        raise
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def frozen_numeric(frozen: Path, own_temporary_directory: Path) -> Iterator[Path]:
    """Return a project's data directory like `frozen`, for `numeric` tasks too."""
    data = own_temporary_directory / "numeric"
    shutil.copytree(frozen, data, ignore=shutil.ignore_patterns("run"))
    publish_flavor(data, "numeric")
    yield data
    shutil.rmtree(data)


@pytest.fixture(scope="module")
def project(frozen: Path) -> Iterator[BoincProject]:
    with BoincProject(frozen) as made:
        yield made

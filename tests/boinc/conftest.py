"""Debian's BOINC client against `stoilo up`, with programs frozen once a session."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from stoilo.testing.boincpackage import BOINC
from stoilo.testing.boincproject import BoincProject


@pytest.fixture(scope="session")
def project(
    request: pytest.FixtureRequest, own_temporary_directory: object
) -> Iterator[BoincProject]:
    """Return a running project; `numeric` is frozen only where slow tests use it."""
    del own_temporary_directory
    if not BOINC.exists():
        pytest.skip("needs boinc-client")
    for program, package in (("gcc", "gcc"), ("objcopy", "binutils")):
        if shutil.which(program, path=f"{os.defpath}:/usr/bin") is None:
            pytest.skip(f"needs {package}")
    slow = any(item.get_closest_marker("slow") for item in request.session.items)
    with BoincProject(("pure", "numeric") if slow else ("pure",)) as made:
        yield made

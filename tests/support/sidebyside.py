"""How tests are shared out when pytest runs several sessions side by side (``-n 2``).

A file stays in one session, because of what its tests share. So does the directory whose
tests mostly wait; it comes first, and the others keep the processors busy meanwhile.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import Final

import pytest
from execnet import XSpec
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.support import reaper

__all__ = ["FilesScheduling", "give_reapers", "is_waiting", "turn_of"]

WAITING: Final = "tests/boinc/"
"""BOINC's clients count their pauses in half minutes; what they are sent is frozen once."""


LONG: Final = (
    "tests/server/engines/embedded/test_state_machine.py",
    "tests/flavors/test_frozen.py",
)
"""Files of minutes: at the end of a run the other sessions would have nothing to do."""


def is_waiting(nodeid: str) -> bool:
    """Whether a test mostly waits."""
    return nodeid.startswith(WAITING)


def turn_of(nodeid: str) -> int:
    """Return the place of a test's directory or file in the order of a run."""
    return 0 if is_waiting(nodeid) else 2 - nodeid.startswith(LONG)


def give_reapers(specs: Sequence[XSpec]) -> None:
    """Start each session below a parent that its own orphans come to, and no others."""
    for spec in specs:
        spec.python = shlex.join([sys.executable, "-I", str(reaper.__file__)])


class FilesScheduling(LoadScopeScheduling):
    """File after file goes to the session that has least left, in the order collected."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return WAITING if is_waiting(nodeid) else nodeid.split("::", 1)[0]

"""Jails shared by the differential tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stoilo.policies.levels import load_level
from stoilo.sandbox.process.channel import TASK_JOB
from stoilo.sandbox.process.supervisor import Jail


@pytest.fixture(scope="session")
def numeric_jail() -> Iterator[Jail]:
    with Jail(load_level("numeric"), TASK_JOB) as jail:
        yield jail

from __future__ import annotations

import errno

import pytest

from stoilo.core.errors import InternalError
from stoilo.server.app.run import Chore


class Work:
    """Counts, and fails while told to."""

    def __init__(self) -> None:
        self.done = 0
        self.fails = ""

    def __call__(self) -> None:
        if self.fails:
            raise InternalError("STO-K020", self.fails)
        self.done += 1


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_chore_keeps_its_pace(clock: Clock) -> None:
    work = Work()
    chore = Chore("a chore", work, 10.0, clock)
    done = [chore.do_if_due(), chore.do_if_due()]
    clock.now = 10.0
    assert [*done, chore.do_if_due()] == [True, False, True]


def test_failed_chore_is_tried_again_at_once(clock: Clock) -> None:
    work = Work()
    chore = Chore("a chore", work, 600.0, clock)
    work.fails = "trouble"
    assert not chore.do_if_due()
    work.fails = ""
    assert chore.do_if_due()


def test_lasting_trouble_is_told_once_a_minute(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    work = Work()
    work.fails = "trouble"
    chore = Chore("a chore", work, 0.0, clock)
    for now in (0.0, 0.5, 59.0, 61.0):
        clock.now = now
        chore.do_if_due()
    assert len(caplog.records) == 2


def test_other_trouble_is_told_at_once(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    work = Work()
    chore = Chore("a chore", work, 0.0, clock)
    for work.fails in ("one", "another"):
        chore.do_if_due()
    assert [record.args[1].count("another") for record in caplog.records] == [0, 1]


def test_refusing_disk_ends_no_server(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "release.record.json")

    assert not Chore("a chore", refuse, 0.0, clock).do_if_due()
    assert "Permission denied" in caplog.text

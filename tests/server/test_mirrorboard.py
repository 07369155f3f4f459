"""Which mirrors are named to hosts: the healthy ones, for what they hold, and no liars."""

from __future__ import annotations

import pytest

from stoilo.executor.messages import FileInfo, ReportedResult, SchedulerReply
from stoilo.server.engines.mirrorboard import (
    DOWNLOAD_FAILED,
    Health,
    MirrorBoard,
    after_bad,
)
from stoilo.server.engines.mirrors import Mirror
from stoilo.testing.server import ManualClock

ONE, TWO = Mirror("https://one.example/f/"), Mirror("https://two.example/")
HELD, OTHER = "a" * 64, "b" * 64
FAILED = ReportedResult("w_0", 1, DOWNLOAD_FAILED)


@pytest.fixture
def clock():
    return ManualClock(1_800_000_000)


@pytest.fixture
def board(clock):
    made = MirrorBoard([ONE, TWO], clock)
    made.found_well(ONE, frozenset([HELD]))
    return made


def mirrors(board, digest=HELD, host=1):
    file = FileInfo(digest, "http://project/f", 5, "0" * 32)
    (sent,) = board.send(SchedulerReply(files=(file,)), host, None).files
    return sent.mirrors


def test_mirror_is_named_for_what_it_holds(board):
    assert mirrors(board) == (f"{ONE.url}{HELD}",)
    assert mirrors(board, OTHER) == ()


def test_mirror_that_was_not_checked_is_named_to_nobody(clock):
    assert mirrors(MirrorBoard([ONE], clock)) == ()


def test_mirror_that_fails_a_check_is_out_until_it_is_well(board):
    board.found_ill(ONE, "dead")
    assert mirrors(board) == ()
    board.found_well(ONE, frozenset([HELD]))
    assert mirrors(board) == (f"{ONE.url}{HELD}",)


def test_ill_mirror_is_tried_again_after_longer_and_longer(board, clock):
    assert board.due() == (TWO,)
    board.found_ill(TWO, "dead")
    assert board.due() == ()
    clock.now += 60
    assert set(board.due()) == {ONE, TWO}
    pauses = []
    health = Health()
    for _ in range(8):
        health = after_bad(health, "dead", 0)
        pauses.append(health.check_at)
    assert pauses == [60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_host_whose_downloads_failed_is_excused_and_sent_to_no_mirror(board, clock):
    mirrors(board)
    assert board.excuses(1, FAILED)
    assert mirrors(board) == ()
    assert mirrors(board, host=2) != ()
    assert set(board.due()) == {ONE, TWO}
    assert board.hurried.is_set()
    clock.now += 86_400
    assert mirrors(board) != ()


def test_host_is_excused_once_a_day(board):
    mirrors(board)
    assert board.excuses(1, FAILED)
    mirrors(board)
    assert not board.excuses(1, FAILED)


def test_host_that_was_sent_nowhere_is_not_excused(board):
    assert not board.excuses(1, FAILED)
    mirrors(board)
    assert not board.excuses(1, ReportedResult("w_0", 3, 195))

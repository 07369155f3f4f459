"""Which mirrors are named to hosts: the healthy ones, for what they hold, and no liars."""

from __future__ import annotations

import pytest

from stoilo.core.boinc.messages import (
    FileInfo,
    FileRef,
    ReportedResult,
    ResultInfo,
    SchedulerReply,
    WorkunitInfo,
)
from stoilo.server.engines import mirrorboard
from stoilo.server.engines.mirrorboard import (
    DOWNLOAD_FAILED,
    Health,
    MirrorBoard,
    after_bad,
)
from stoilo.server.engines.mirrors import Mirror
from tests.support.server import ManualClock

ONE, TWO = Mirror("https://one.example/f/"), Mirror("https://two.example/")
HELD, OTHER = "a" * 64, "b" * 64


def failed(copy="w_0"):
    return ReportedResult(copy, 1, DOWNLOAD_FAILED)


@pytest.fixture
def clock():
    return ManualClock(1_800_000_000)


@pytest.fixture
def board(clock):
    made = MirrorBoard([ONE, TWO], clock)
    made.found_well(ONE, frozenset([HELD]))
    return made


def mirrors(board, digest=HELD, host=1, copies=("w_0",)):
    file = FileInfo(digest, "http://project/f", 5, "0" * 32)
    reply = SchedulerReply(
        files=(file,),
        workunits=(WorkunitInfo("w", "pure", 1.0, 1.0, (FileRef(digest, "model"),)),),
        results=tuple(ResultInfo(copy, "w", 0, "") for copy in copies),
    )
    (sent,) = board.send(reply, host, None).files
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
    assert board.excuses(1, failed())
    assert mirrors(board) == ()
    assert mirrors(board, host=2) != ()
    assert set(board.due()) == {ONE, TWO}
    assert board.hurried.is_set()
    clock.now += 86_400
    assert mirrors(board) != ()


def test_every_copy_that_was_sent_before_the_host_began_to_distrust_is_excused(
    board, clock
):
    names = [f"w_{number}" for number in range(16)]
    mirrors(board, copies=names[:8])
    mirrors(board, copies=names[8:])
    assert all(board.excuses(1, failed(name)) for name in names[:9])
    clock.now += 3600
    assert mirrors(board, copies=["later"]) == ()
    assert all(board.excuses(1, failed(name)) for name in names)  # even if asked twice
    assert not board.excuses(1, failed("later"))
    assert not board.excuses(2, failed("w_0"))


def test_later_excuses_do_not_prolong_the_day_without_mirrors(board, clock):
    mirrors(board, copies=["w_0", "w_1"])
    assert board.excuses(1, failed("w_0"))
    clock.now += 86_399
    assert board.excuses(1, failed("w_1"))
    clock.now += 1
    assert mirrors(board) != ()


def test_copy_whose_file_no_mirror_holds_is_not_excused(board):
    mirrors(board, OTHER)
    assert not board.excuses(1, failed())


def test_copies_sent_while_the_client_still_has_the_wrong_file_are_excused(
    board, clock
):
    mirrors(board)
    assert board.excuses(1, failed())
    assert mirrors(board, copies=["w_1"]) == ()  # the reply to that report
    clock.now += 61
    mirrors(board, copies=["w_2"])
    assert board.excuses(1, failed("w_1"))
    assert not board.excuses(1, failed("w_2"))


def test_copies_sent_longest_ago_are_forgotten(board, monkeypatch):
    monkeypatch.setattr(mirrorboard, "COPIES_REMEMBERED", 2)
    mirrors(board, copies=["w_0", "w_1", "w_2"])
    said = [board.excuses(1, failed(f"w_{number}")) for number in range(3)]
    assert said == [False, True, True]


def test_host_that_was_sent_nowhere_is_not_excused(board):
    assert not board.excuses(1, failed())
    mirrors(board)
    assert not board.excuses(1, ReportedResult("w_0", 3, 195))

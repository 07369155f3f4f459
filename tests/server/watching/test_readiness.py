"""Ready is the sum of checks; a check that hangs or breaks is a no, never a yes."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoilo.core.errors import InternalError
from stoilo.server.watching.readiness import (
    LAG_S,
    STALE_S,
    HeadFreshness,
    LogFigures,
    Readiness,
    ReadinessThread,
    ask,
    check_disk,
    check_log,
    check_release,
)
from stoilo.signer.release_status import ReleaseStatus
from tests.support.server import ManualClock


def refuse() -> str:
    raise InternalError("STO-R030", "the database is away")


def crash() -> str:
    raise ValueError("a fault of ours")


def test_no_checks_is_not_ready() -> None:
    assert not Readiness().ready


def test_all_yes_is_ready() -> None:
    thread = ReadinessThread({"a": lambda: "", "b": lambda: ""})
    assert thread.look().ready
    assert thread.newest().ready


@pytest.mark.parametrize(
    ("probe", "reason"),
    [
        (refuse, "the database is away [STO-R030]"),
        (crash, "the check itself failed"),
        (lambda: "too late", "too late"),
    ],
)
def test_any_no_is_not_ready_and_says_why(probe, reason) -> None:
    found = ReadinessThread({"good": lambda: "", "bad": probe}).look()
    assert not found.ready
    assert [one.reason for one in found.checks] == ["", reason]


def test_answers_grow_stale() -> None:
    clock = ManualClock()
    thread = ReadinessThread({"a": lambda: ""}, clock)
    thread.look()
    clock.now += int(STALE_S) + 1
    assert not thread.newest().ready
    assert thread.newest().checks[0].name == "watch"


def test_changes_are_told_once() -> None:
    answers, told = iter(["", "", "no", "no", ""]), []
    thread = ReadinessThread({"a": lambda: next(answers)})
    thread.tell(told.append)
    for _ in range(5):
        thread.look()
    assert told == [True, False, True]


def test_idle_log_is_fresh_however_old_its_checkpoint() -> None:
    freshness = HeadFreshness()
    assert freshness.lag(5, 5, 0.0) == 0.0
    assert freshness.lag(5, 5, 1e6) == 0.0


def test_lag_counts_from_the_oldest_leaf_seen_waiting() -> None:
    freshness = HeadFreshness()
    freshness.lag(7, 5, 10.0)
    assert freshness.lag(9, 6, 25.0) == 15.0
    assert freshness.lag(9, 7, 26.0) == 0.0  # those of then are out; newer ones wait


def test_log_behind_is_not_ready() -> None:
    assert check_log(lambda: LogFigures(9, 7, LAG_S)) == ""
    assert "2 leaves" in check_log(lambda: LogFigures(9, 7, LAG_S + 1))
    assert check_log(lambda: LogFigures(9, 7, 1.0, "stopped")) == "stopped"


def test_disk_nearly_full_is_not_ready(tmp_path: Path) -> None:
    assert check_disk([tmp_path], least=1) == ""
    assert "are needed" in check_disk([tmp_path], least=2**62)
    assert "cannot be asked" in check_disk([tmp_path / "gone"])


@pytest.mark.parametrize(
    ("trouble", "epochs", "state", "ok"),
    [
        ("", "ok", "ok", True),
        ("", "soon", "urgent", True),
        ("STO-K013", "ok", "expired", False),
        ("", "expired", "expired", False),
        ("", "ok", "expired", False),
    ],
)
def test_release_that_volunteers_refuse_is_not_ready(
    trouble, epochs, state, ok
) -> None:
    status = ReleaseStatus(
        state=state,
        time=0,
        origin="",
        development=True,
        trouble=trouble,
        roles=(),
        epochs_until=0,
        epochs=epochs,
    )
    assert (check_release(lambda: status) == "") is ok


def test_reason_is_bounded() -> None:
    assert (
        len(
            ask(
                "a", lambda: (_ for _ in ()).throw(InternalError("STO-R030", "x" * 999))
            ).reason
        )
        <= 200
    )

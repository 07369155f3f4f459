import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoilo.audit.monitor.finding import Finding, FindingKind, Severity
from stoilo.audit.monitor.state import MonitorState
from stoilo.core.errors import TrustError, UnreachableError

NOTICE = Finding(FindingKind.KEY, Severity.NOTICE, "a key was born", place=3)
PROOF = Finding(FindingKind.FORK, Severity.PROOF, "two histories", proof="text")


@pytest.fixture
def state(tmp_path: Path) -> Iterator[MonitorState]:
    made = MonitorState.open(tmp_path / "state")
    yield made
    made.close()


def reopen(state: MonitorState) -> MonitorState:
    state.close()
    return MonitorState.open(state.path.parent)


def test_new_state_is_empty_and_private(state: MonitorState) -> None:
    assert (state.memory.size, state.memory.note, list(state.findings())) == (
        0,
        b"",
        [],
    )
    assert stat.S_IMODE(state.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(state.path.parent.stat().st_mode) == 0o700


def test_finished_change_is_there_after_a_restart(tmp_path: Path) -> None:
    state = MonitorState.open(tmp_path)
    with state.change():
        state.mirror.extend([b"\1" * 32])
        state.remember(size=1, seen=7)
        state.report(NOTICE)
    again = reopen(state)
    assert (again.memory.size, again.memory.seen) == (1, 7)
    assert again.mirror.root_at(1) == b"\1" * 32
    assert [one for _, one in again.findings()] == [NOTICE]
    again.close()


def test_broken_off_change_leaves_nothing(state: MonitorState) -> None:
    with state.change():
        state.mirror.extend([b"\1" * 32])
        state.remember(size=1)

    def fail() -> None:
        with state.change():
            state.mirror.extend([b"\2" * 32])
            state.remember(size=2)
            state.report(NOTICE)
            raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        fail()
    assert (state.memory.size, state.mirror.size) == (1, 1)
    assert list(state.findings()) == []
    with state.change():
        state.mirror.extend([b"\3" * 32])
    assert state.mirror.node(0, 1) == b"\3" * 32


def test_shown_findings_go_and_proofs_stay(state: MonitorState) -> None:
    with state.change():
        state.report(NOTICE)
        state.report(PROOF)
    for number, _ in list(state.findings()):
        state.forget_finding(number)
    assert [one for _, one in state.findings()] == [PROOF]
    assert state.memory.condemned


def test_findings_come_in_order_and_while_they_are_forgotten(
    state: MonitorState,
) -> None:
    with state.change():
        for place in range(5):
            state.report(Finding(FindingKind.MATCH, Severity.NOTICE, "m", place=place))
    seen = []
    for number, finding in state.findings():
        state.forget_finding(number)
        seen.append(finding.place)
    assert seen == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "damage",
    [
        "PRAGMA user_version = 9",
        "UPDATE memory SET body = x'ff'",
        'UPDATE memory SET body = CAST(\'{"size": -1, "x": 2}\' AS BLOB)',
        "DROP TABLE memory",
    ],
)
def test_damaged_state_is_named(tmp_path: Path, damage: str) -> None:
    state = MonitorState.open(tmp_path)
    with state.change():
        state.remember(seen=1)
    state.close()
    connection = sqlite3.connect(tmp_path / "monitor.sqlite", isolation_level=None)
    connection.execute(damage)
    connection.close()
    with pytest.raises(TrustError, match="STO-L124"):
        MonitorState.open(tmp_path)


def test_machine_that_fails_is_no_damage(state: MonitorState) -> None:
    state.connection.execute("PRAGMA query_only = ON")

    def write() -> None:
        with state.change():
            state.remember(seen=1)

    with pytest.raises(UnreachableError, match="STO-L002"):
        write()
    assert state.memory.seen == 0


def test_place_that_can_hold_no_state_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnreachableError, match="STO-L002"):
        MonitorState.open(tmp_path / "file" / "state")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "lock").symlink_to("/dev/null")
    with pytest.raises(UnreachableError, match="STO-L002"):
        MonitorState.open(tmp_path / "state")

from collections.abc import Callable
from dataclasses import replace

import pytest

from stoilo.audit.format.misbehaviour import check_misbehaviour
from stoilo.audit.log.seen import PAGE_ROWS, result_commitment
from stoilo.audit.monitor import cross_check, state
from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError
from tests.support.faulty_log import LogKey
from tests.support.memory_log import MemoryLogSource

from .conftest import Watcher

Fill = Callable[[int], Watcher]


def fork(size: int, key: LogKey | None = None) -> bytes:
    """Return a checkpoint of a log that admitted something else."""
    other = MemoryLogSource(key)
    for number in range(size):
        other.admit(f"other{number}")
    return other.sign()


def test_what_executors_saw_of_this_log_is_fine(filled: Fill) -> None:
    watcher = filled(3)
    for size in (1, 2, 5, 6):
        watcher.log.see("s0", watcher.log.sign(size), copy=size)
    assert watcher.kinds() == []


@pytest.mark.parametrize("size", [1, 4, 6])
def test_fork_that_one_executor_saw_is_proven(filled: Fill, size: int) -> None:
    watcher = filled(3)
    watcher.log.see("s0", watcher.log.sign(4))
    watcher.log.see("other0", fork(size), copy=1)
    (finding,) = watcher.poll()
    shown = check_misbehaviour(finding.proof.encode(), watcher.policy)
    assert (finding.kind, shown.first.size) == ("fork", size)


def test_fork_of_a_larger_size_is_proven_when_the_log_gets_there(filled: Fill) -> None:
    watcher = filled(3)
    watcher.log.see("other0", fork(8))
    assert watcher.kinds() == []
    watcher.log.explain(watcher.log.admit("x"))
    watcher.log.publish()
    assert watcher.kinds() == ["fork"]


def test_signed_checkpoint_that_stays_hidden_raises_the_alarm(filled: Fill) -> None:
    watcher = filled(3)
    watcher.log.see("other0", fork(8))
    watcher.poll()
    watcher.now += 901
    (finding,) = watcher.poll()
    assert (finding.kind, finding.code) == ("seen", "STO-L138")
    assert "8 leaves" in finding.message
    assert watcher.kinds() == []


def test_admission_that_the_log_does_not_hold_is_told(filled: Fill) -> None:
    watcher = filled(3)
    watcher.log.see("nowhere", watcher.log.sign())
    watcher.log.see("s2", watcher.log.sign(4), attempt=2)  # before it was logged
    assert [one.code for one in watcher.poll()] == ["STO-L138"] * 2


def test_copies_of_one_attempt_must_rest_on_one_leaf(filled: Fill) -> None:
    watcher = filled(3)
    for name, copy in (("s0", 0), ("s0", 1), ("s1", 2)):
        watcher.log.see(name, watcher.log.sign(), copy)
    (finding,) = watcher.poll()
    assert "another admission than the other results" in finding.message


def test_attempts_of_one_task_rest_on_their_own_leaves(filled: Fill) -> None:
    watcher = filled(3)
    watcher.log.see("s0", watcher.log.sign(), attempt=1)
    watcher.log.see("s1", watcher.log.sign(), attempt=2)
    assert watcher.kinds() == []


@pytest.mark.parametrize("note", [b"", b"rubbish", fork(1, LogKey("log.other/t"))])
def test_row_without_a_checkpoint_of_the_log_is_told(filled: Fill, note: bytes) -> None:
    watcher = filled(3)
    watcher.log.see("s0", note)
    assert [one.code for one in watcher.poll()] == ["STO-L138"]


def test_own_line_can_be_watched(filled: Fill) -> None:
    watcher = filled(3)
    mine = result_commitment("s0_1_7")
    watcher.watch(f"commitment:{mine}", f"digest:{content_digest(b's1')}")
    watcher.log.see("s0", watcher.log.sign(), copy=7)
    watcher.log.see("s1", watcher.log.sign(), attempt=2)
    assert watcher.kinds() == ["match", "match"]


def test_rows_beyond_one_page_are_checked_once(filled: Fill) -> None:
    watcher = filled(3)
    note = watcher.log.sign()
    for copy in range(600):
        watcher.log.see("s0", note, copy)
    watcher.log.see("nowhere", note, attempt=2)
    assert watcher.kinds() == ["seen"]
    watcher.log.see("nowhere", note, attempt=3)
    assert watcher.kinds() == ["seen"]
    assert watcher.kinds() == []


def test_rows_that_are_gone_again_are_told_once(filled: Fill) -> None:
    watcher = filled(3)
    for copy in range(3):
        watcher.log.see("s0", watcher.log.sign(), copy)
    watcher.poll()
    del watcher.log.seen_rows[1:]
    assert [one.code for one in watcher.poll()] == ["STO-L134"]
    assert watcher.kinds() == []


def test_malformed_page_is_an_error(filled: Fill) -> None:
    watcher = filled(3)
    watcher.log.seen = lambda number: b"{}\n"  # type: ignore[method-assign]  # noqa: ARG005
    with pytest.raises(TrustError, match="STO-L010"):
        watcher.poll()


def test_fork_is_not_lost_when_the_process_dies_behind_it(filled: Fill) -> None:
    watcher = filled(3)
    watcher.log.see("other0", fork(4))
    watcher.monitor().poll()
    watcher.monitor()
    assert [one.kind for one in watcher.findings()] == ["fork"]


@pytest.mark.parametrize("attempt", [-1, 2**63, 2**70])
def test_attempt_that_no_database_holds_is_an_error(filled: Fill, attempt: int) -> None:
    watcher = filled(3)
    watcher.log.see("s0", watcher.log.sign())
    honest = watcher.log.seen(0) or b""
    bent = honest.replace(b'"attempt":1', b'"attempt":%d' % attempt)
    watcher.log.seen = lambda number: None if number else bent  # type: ignore[method-assign]
    with pytest.raises(TrustError, match="STO-L010"):
        watcher.poll()


def test_row_of_another_trusted_log_is_told_and_stops_nothing(filled: Fill) -> None:
    watcher = filled(3)
    other = LogKey("log.other/t")
    logs = (*watcher.policy.logs, *other.policy.logs)
    watcher.policy = replace(watcher.policy, logs=logs)
    watcher.log.see("s0", fork(4, other))
    watcher.log.see("other0", fork(4), copy=1)
    assert watcher.kinds() == ["seen", "fork"]


def test_pages_that_never_end_do_not_hold_a_poll(
    filled: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher, asked = filled(1), []
    monkeypatch.setattr(cross_check, "_MOST_PAGES", 3)
    for copy in range(PAGE_ROWS):
        watcher.log.see("s0", watcher.log.sign(), copy)
    page = watcher.log.seen(0)
    watcher.log.seen = lambda number: asked.append(number) or page  # type: ignore[method-assign,func-returns-value]
    assert watcher.kinds() == []
    assert asked == [0, 1, 2]
    assert watcher.kinds() == []
    assert asked[3:] == [3, 4, 5]


def test_flood_of_rows_ahead_or_wrong_is_bounded_and_summed_up(
    filled: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = filled(1)
    monkeypatch.setattr(cross_check, "_MOST_AHEAD", 2)
    monkeypatch.setattr(state, "MOST_OF_A_KIND", 3)
    for copy in range(9):
        watcher.log.see("other0", fork(8), copy)
    told = [one.message for one in watcher.poll()]
    assert len(told) == 4
    assert told[-1] == "4 more of kind seen"


def test_flood_of_alarms_hides_no_match(
    filled: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = filled(1)
    watcher.watch(f"commitment:{result_commitment('s0_1_9')}")
    monkeypatch.setattr(state, "MOST_OF_A_KIND", 2)
    for copy in range(9):
        watcher.log.see("s0", b"rubbish", copy)
    watcher.log.see("s0", watcher.log.sign(), 9)
    assert watcher.kinds() == ["seen", "seen", "match", "seen"]

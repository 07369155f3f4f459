import dataclasses
from collections.abc import Callable

import pytest

from stoilo.audit.format.merkle import Checkpoint, leaf_hash, render_checkpoint
from stoilo.audit.format.misbehaviour import check_misbehaviour
from stoilo.audit.format.policy import LogPolicy
from stoilo.audit.format.proof import Leaf, LeafKind, render_leaf
from stoilo.audit.format.tiles import ENTRIES, Tile
from stoilo.audit.monitor.monitor import Monitor
from stoilo.audit.monitor.state import MonitorState
from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError, UnreachableError, UsageError
from tests.support.faulty_log import LogKey

from .conftest import Watcher

Fill = Callable[[int], Watcher]


# -- growing -------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [(1, 1), (127, 2), (128, 128), (129, 300)])
def test_log_that_grows_is_followed(filled: Fill, steps: tuple[int, int]) -> None:
    watcher = filled(steps[0])
    assert watcher.size == 2 * steps[0]
    for number in range(steps[1]):
        watcher.log.explain(watcher.log.admit(f"more{number}"))
    watcher.log.publish()
    assert watcher.kinds() == []
    assert watcher.size == 2 * sum(steps)


def test_only_new_bundles_are_read(filled: Fill) -> None:
    watcher = filled(300)
    watcher.log.explain(watcher.log.admit("x"))
    watcher.log.publish()
    watcher.log.reads.clear()
    watcher.poll()
    assert watcher.log.reads == ["checkpoint", "tile -1 2 90", "records 2"]


def test_empty_log_is_followed_from_its_first_checkpoint(watcher: Watcher) -> None:
    assert watcher.kinds() == []
    watcher.log.publish()
    assert watcher.kinds() == []
    watcher.log.explain(watcher.log.admit())
    watcher.log.publish()
    assert watcher.kinds() == ["submitter"]


def test_match_of_a_record_and_of_a_leaf_are_told_once(watcher: Watcher) -> None:
    wanted = [f"digest:{content_digest(b's')}", "key:gate", "kind:key"]
    watcher.watch(*wanted)
    watcher.log.explain(watcher.log.admit())
    watcher.log.key_event("born")
    watcher.log.publish()
    found = [one.watch for one in watcher.poll() if one.watch]
    assert sorted(found) == wanted
    assert watcher.kinds() == []


def test_birth_and_death_of_keys_are_told_unasked(watcher: Watcher) -> None:
    watcher.log.key_event("born")
    watcher.log.key_event("died", time=60)
    watcher.log.publish()
    assert ["born" in one.message for one in watcher.poll()] == [True, False]


# -- two histories -------------------------------------------------------------------


def forged(watcher: Watcher, place: int, size: int | None = None) -> None:
    """Let the log show a tree in which one leaf is another."""
    watcher.log.entries[place] = render_leaf(
        Leaf(LeafKind.ADMISSION, content_digest(b"forged"), "1", 7)
    )
    if size is not None:
        del watcher.log.entries[size:]
    while size is not None and len(watcher.log.entries) < size:
        watcher.log.explain(watcher.log.admit(f"later{len(watcher.log.entries)}"))
    watcher.log.publish()


@pytest.mark.parametrize("size", [600, 602, 599, 300, 1, 900])
def test_fork_is_proven_whatever_its_size(filled: Fill, size: int) -> None:
    watcher = filled(300)
    forged(watcher, 0, size)
    (finding,) = watcher.poll()
    assert (finding.kind, finding.code) == ("fork", "STO-L120")
    shown = check_misbehaviour(finding.proof.encode(), watcher.policy)
    assert {shown.first.size, shown.second.size} == {600, size}
    assert watcher.size == 600


def test_fork_is_proven_while_its_entries_are_withheld(filled: Fill) -> None:
    watcher = filled(300)
    forged(watcher, 0, 900)
    tile = watcher.log.tile
    watcher.log.tile = lambda one: None if one.level == ENTRIES else tile(one)  # type: ignore[method-assign]
    assert watcher.kinds() == ["fork"]


def test_proof_stays_and_the_log_is_followed_no_further(filled: Fill) -> None:
    watcher = filled(3)
    honest = list(watcher.log.entries)
    forged(watcher, 1)
    assert watcher.kinds() == ["fork"]
    watcher.log.entries = honest
    watcher.log.key_event("born")
    watcher.log.publish()
    assert (watcher.kinds(), watcher.size) == (["fork"], 6)


def test_fork_without_the_quorum_is_still_the_log_s(watcher: Watcher) -> None:
    watcher.log.key = LogKey("log.test/t", witness_time=900)
    watcher.policy = watcher.log.key.policy
    watcher.log.explain(watcher.log.admit())
    watcher.log.publish()
    watcher.poll()
    watcher.log.key = LogKey("log.test/t")
    forged(watcher, 0)
    assert watcher.kinds() == ["fork"]


def test_older_checkpoint_is_told_once_and_is_no_fork(filled: Fill) -> None:
    watcher = filled(3)
    newest, watcher.log.note = watcher.log.note, watcher.log.sign(4)
    (finding,) = watcher.poll()
    assert (finding.kind, finding.code) == ("went_back", "STO-L121")
    assert watcher.kinds() == []
    watcher.log.note = newest
    assert (watcher.kinds(), watcher.size) == ([], 6)
    watcher.log.note = watcher.log.sign(4)
    assert watcher.kinds() == ["went_back"]


def test_vanished_checkpoint_is_an_error(filled: Fill) -> None:
    watcher = filled(3)
    watcher.log.note = None
    with pytest.raises(TrustError, match="STO-L032"):
        watcher.poll()


# -- rubbish -------------------------------------------------------------------------


def test_changed_entry_is_refused_and_nothing_is_taken(filled: Fill) -> None:
    watcher = filled(3)
    watcher.watch("kind:key")
    watcher.log.key_event("born")
    watcher.log.publish()
    watcher.log.entries[-1] = watcher.log.entries[-1].replace(b"key", b"KEY")
    with pytest.raises(TrustError, match="STO-L032"):
        watcher.poll()
    assert (watcher.size, watcher.findings()) == (6, [])


def test_next_poll_of_a_mended_log_tells_what_was_missed(filled: Fill) -> None:
    watcher = filled(3)
    watcher.watch("kind:key")
    place = watcher.log.key_event("born")
    watcher.log.publish()
    whole, watcher.log.entries[place] = watcher.log.entries[place], b""
    with pytest.raises(TrustError):
        watcher.poll()
    watcher.log.entries[place] = whole
    assert sorted(watcher.kinds()) == ["key", "match"]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (None, "STO-L032"),
        (b"", "STO-L010"),
        (b"\xff" * 100, "STO-L010"),
        (b"\0\0" * 256, "STO-L032"),
    ],
)
def test_rubbish_for_a_bundle_is_refused(
    filled: Fill, data: bytes | None, code: str
) -> None:
    watcher = filled(3)
    watcher.log.explain(watcher.log.admit())
    watcher.log.publish()
    watcher.log.tile = lambda tile: data  # type: ignore[method-assign]  # noqa: ARG005
    with pytest.raises(TrustError, match=code):
        watcher.poll()
    assert watcher.size == 6


def test_endless_log_is_not_read(filled: Fill) -> None:
    watcher = filled(3)
    claim = Checkpoint("log.test/t", 2**62, b"\7" * 32)
    watcher.log.note = watcher.log.key.sign(render_checkpoint(claim))
    watcher.log.reads.clear()
    with pytest.raises(TrustError, match="STO-L032"):
        watcher.poll()
    assert len(watcher.log.reads) < 5


@pytest.mark.parametrize("note", [b"", b"<html>", b"\xff" * 70_000, b"a\n0\nb\n\nc\n"])
def test_rubbish_for_a_checkpoint_is_refused(filled: Fill, note: bytes) -> None:
    watcher = filled(1)
    watcher.log.note = note
    with pytest.raises(TrustError, match="STO-L01"):
        watcher.poll()


def test_checkpoint_of_another_key_is_refused(filled: Fill) -> None:
    watcher = filled(1)
    watcher.log.key = LogKey("log.test/t", b"\x09" * 32)
    forged(watcher, 0)
    with pytest.raises(TrustError, match="STO-L011"):
        watcher.poll()


def test_checkpoint_without_the_quorum_is_not_followed(filled: Fill) -> None:
    watcher = filled(1)
    watcher.policy = LogKey("log.test/t", witness_time=5).policy
    watcher.log.explain(watcher.log.admit())
    watcher.log.publish()
    with pytest.raises(TrustError, match="STO-L013"):
        watcher.poll()
    assert watcher.size == 2


def test_log_out_of_reach_is_not_a_forger(filled: Fill) -> None:
    watcher = filled(3)
    watcher.log.explain(watcher.log.admit())
    watcher.log.publish()

    def fail(tile: Tile) -> bytes:
        raise UnreachableError("STO-L002", f"no answer for {tile.level}")

    watcher.log.tile = fail  # type: ignore[method-assign]
    with pytest.raises(UnreachableError, match="STO-L002"):
        watcher.poll()


# -- time ----------------------------------------------------------------------------


def test_frozen_log_is_silent_once_until_it_moves(filled: Fill) -> None:
    watcher = filled(1)
    watcher.now += 86_401
    assert watcher.kinds() == ["silence"]
    assert watcher.kinds() == []
    watcher.log.explain(watcher.log.admit("x"))
    watcher.log.publish()
    assert watcher.kinds() == []
    watcher.now += 86_401
    assert watcher.kinds() == ["silence"]


def test_fresh_cosignature_is_a_sign_of_life(watcher: Watcher) -> None:
    watcher.log.key = LogKey("log.test/t", witness_time=900)
    watcher.policy = watcher.log.key.policy
    watcher.log.publish()
    watcher.poll()
    watcher.now += 80_000
    watcher.log.key.witness_time = 80_900
    watcher.log.publish()
    assert watcher.kinds() == []
    watcher.now += 80_000
    assert watcher.kinds() == []
    watcher.now += 80_000
    assert watcher.kinds() == ["silence"]


def test_silence_is_kept_when_the_poll_fails(filled: Fill) -> None:
    watcher = filled(1)
    watcher.now += 86_401
    watcher.log.note = b"rubbish"
    monitor = watcher.monitor()
    with pytest.raises(TrustError):
        monitor.poll()
    assert [one.kind for one in watcher.findings()] == ["silence"]


# -- crashes and changes -------------------------------------------------------------


class Crash(BaseException):
    """The process ends here."""


@pytest.mark.parametrize(
    "step",
    [
        "inspection.Inspection._match",
        "inspection.Inspection._take_meaning",
        "state.MonitorState._save",
    ],
)
def test_crash_between_consistency_and_match_loses_no_match(
    filled: Fill, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    watcher = filled(200)
    watcher.watch("kind:key")
    watcher.log.key_event("born")
    watcher.log.publish()

    def crash(*_: object, **__: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(f"stoilo.audit.monitor.{step}", crash)
        with pytest.raises(Crash):
            watcher.poll()
    assert watcher.size == 400
    assert sorted(watcher.kinds()) == ["key", "match"]
    assert watcher.size == 401


def test_control_a_state_saved_before_matching_would_lose_the_match(
    filled: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = filled(200)
    watcher.watch("kind:key")
    watcher.log.key_event("born")
    watcher.log.publish()

    def hurry(monitor: Monitor, note: bytes, target: Checkpoint, _: int) -> None:
        state = monitor._state
        with state.change():
            state.mirror.extend([leaf_hash(watcher.log.entries[-1])])
            state.remember(note=note, size=target.size)
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(Monitor, "_take", hurry)
        with pytest.raises(Crash):
            watcher.poll()
    assert watcher.kinds() == []


def test_what_was_found_and_not_shown_is_there_after_a_restart(filled: Fill) -> None:
    watcher = filled(1)
    watcher.log.key_event("born")
    watcher.log.publish()
    watcher.monitor().poll()
    watcher.close()
    watcher.monitor()
    assert [one.kind for one in watcher.findings()] == ["key"]


def test_changed_policy_is_followed(filled: Fill) -> None:
    watcher = filled(1)
    other = LogKey("log.test/t", b"\x09" * 32)
    watcher.policy = LogPolicy((*watcher.policy.logs, *other.policy.logs))
    assert watcher.kinds() == []
    watcher.log.explain(watcher.log.admit())
    watcher.log.key = other
    watcher.log.publish()
    assert watcher.kinds() == []
    assert watcher.size == 4


def test_policy_of_another_log_is_refused(filled: Fill) -> None:
    watcher = filled(1)
    watcher.policy = LogKey("log.other/t").policy
    with pytest.raises(UsageError, match="STO-L048"):
        watcher.monitor()


def test_second_monitor_of_a_state_is_refused(filled: Fill) -> None:
    watcher = filled(1)
    with pytest.raises(UsageError, match="STO-L040"):
        MonitorState.open(watcher.directory)


def test_state_that_does_not_fit_its_checkpoint_is_refused(filled: Fill) -> None:
    watcher = filled(1)
    assert watcher.state is not None
    watcher.state.connection.execute("UPDATE tile SET hashes = zeroblob(64)")
    with pytest.raises(TrustError, match="STO-L124"):
        watcher.monitor()


def test_damaged_state_is_refused(filled: Fill) -> None:
    watcher = filled(1)
    watcher.close()
    path = watcher.directory / "monitor.sqlite"
    path.write_bytes(b"\xff" * path.stat().st_size)
    with pytest.raises(TrustError, match="STO-L124"):
        watcher.monitor()


def test_policies_differ_as_text_only_when_they_differ(filled: Fill) -> None:
    watcher = filled(1)
    watcher.policy = dataclasses.replace(watcher.policy)
    assert watcher.kinds() == []

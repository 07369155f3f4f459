"""Policies age: what was proven under an older one stays proven, and nothing more."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.audit.format.merkle import MAX_SIZE, Checkpoint, render_checkpoint
from stoilo.audit.format.note import KeyType, Note, cosign_note, render_note, sign_note
from stoilo.audit.format.policy import (
    MAX_RETIRED,
    LogPolicy,
    RetiredPolicy,
    Witness,
    open_checkpoint,
    parse_history,
    parse_policies,
    parse_policy,
    render_history,
    render_policy,
    succeed,
    with_history,
)
from stoilo.core.errors import TrustError
from tests.support.faulty_log import render_policies
from tests.support.notekeys import NoteKey

ORIGIN = "log.test/t"
LOG = NoteKey.from_seed(ORIGIN, KeyType.ED25519, b"\1" * 32)
OLD = NoteKey.from_seed("old.test", KeyType.COSIGNATURE, b"\2" * 32)
NEW = NoteKey.from_seed("new.test", KeyType.ML_DSA_44, b"\3" * 32)
CHANGE, SIZE = 1_000_000, 500


def policy_of(key: NoteKey) -> LogPolicy:
    return LogPolicy((LOG.vkey,), (Witness("w", key.vkey),), (), "w")


POLICY = succeed(policy_of(OLD), policy_of(NEW), now=CHANGE, size=SIZE)


def note_of(key: NoteKey | None, *, time: int = CHANGE, size: int = SIZE) -> bytes:
    body = render_checkpoint(Checkpoint(ORIGIN, size, b"\5" * 32))
    assert not isinstance(LOG.private, type(NEW.private))
    items = [sign_note(body, ORIGIN, LOG.private)]
    if key is not None:
        items.append(cosign_note(body, key.vkey.name, key.private, time))
    return render_note(Note(body, tuple(items)))


def test_checkpoint_of_the_old_witness_stays_good() -> None:
    found = open_checkpoint(note_of(OLD), POLICY)
    assert found.retired
    assert (found.time, found.witnesses) == (CHANGE, {"w"})


def test_checkpoint_of_the_new_witness_is_under_the_current_policy() -> None:
    found = open_checkpoint(note_of(NEW, time=CHANGE + 9, size=SIZE + 9), POLICY)
    assert not found.retired


@pytest.mark.parametrize(
    "note",
    [
        note_of(None),
        note_of(OLD, time=CHANGE + 1),
        note_of(OLD, size=SIZE + 1),
    ],
)
def test_old_policy_speaks_for_its_own_time_and_sizes_only(note: bytes) -> None:
    with pytest.raises(TrustError, match="STO-L013"):
        open_checkpoint(note, POLICY)


def test_nothing_new_is_judged_by_an_old_policy() -> None:
    with pytest.raises(TrustError, match="STO-L013"):
        open_checkpoint(note_of(OLD), POLICY.current)


def test_old_policy_before_its_window_does_not_count() -> None:
    early = RetiredPolicy(policy_of(OLD), CHANGE, CHANGE + 5, SIZE)
    policy = replace(POLICY.current, older=(early,))
    assert open_checkpoint(note_of(OLD), policy).retired
    with pytest.raises(TrustError, match="STO-L013"):
        open_checkpoint(note_of(OLD, time=CHANGE - 1), policy)


def test_forged_signature_of_a_known_key_is_never_passed_on_to_older_policies() -> None:
    good = note_of(NEW, time=CHANGE + 1)
    forged = good.replace(b"\n500\n", b"\n400\n")
    with pytest.raises(TrustError, match="STO-L012"):
        open_checkpoint(forged, POLICY)


def test_retired_log_key_speaks_for_what_it_signed_before() -> None:
    after = NoteKey.from_seed(ORIGIN, KeyType.ED25519, b"\4" * 32)
    old = LogPolicy((LOG.vkey,))
    policy = succeed(old, LogPolicy((after.vkey,)), now=CHANGE, size=SIZE)
    assert open_checkpoint(note_of(None), policy).retired
    with pytest.raises(TrustError, match="STO-L011"):
        open_checkpoint(note_of(None, size=SIZE + 1), policy)


def test_older_policy_without_witnesses_cannot_undo_those_of_today() -> None:
    bare = RetiredPolicy(LogPolicy((LOG.vkey,)), 0, CHANGE, SIZE)
    with pytest.raises(TrustError, match="STO-L003"):
        with_history(policy_of(NEW), (bare,))
    text = render_policy(policy_of(NEW)) + render_history((bare,))
    with pytest.raises(TrustError, match="STO-L003"):
        parse_policies(text)
    old = LogPolicy((LOG.vkey,))
    assert succeed(old, policy_of(NEW), now=CHANGE, size=SIZE).older == ()


def test_three_generations_are_remembered_newest_first() -> None:
    third = NoteKey.from_seed("third.test", KeyType.COSIGNATURE, b"\6" * 32)
    policy = succeed(POLICY, policy_of(third), now=CHANGE + 50, size=SIZE + 50)
    assert [one.until for one in policy.older] == [CHANGE + 50, CHANGE]
    assert open_checkpoint(note_of(OLD), policy).retired
    assert succeed(policy, policy_of(third), now=CHANGE + 60, size=900) == policy


def test_policies_are_written_and_read_back() -> None:
    assert parse_policies(render_policies(POLICY)) == POLICY
    assert parse_policies(render_policy(POLICY)) == POLICY.current
    assert parse_policy(render_policy(POLICY)) == POLICY.current
    assert parse_history(render_history(POLICY.older)) == POLICY.older


def test_unbounded_memory_of_policies_is_refused() -> None:
    policy = replace(POLICY, older=POLICY.older * MAX_RETIRED)
    with pytest.raises(TrustError, match="STO-L003"):
        succeed(policy, policy_of(OLD), now=CHANGE, size=SIZE)
    with pytest.raises(TrustError, match="STO-L003"):
        parse_policies(render_policies(replace(policy, older=policy.older * 2)))


BODY = render_policy(policy_of(OLD))
BARE = render_policy(LogPolicy((LOG.vkey,)))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        BODY,
        BODY + b"retired 0 1 1\n" + BODY,
        b"retired\n" + BODY,
        b"retired 0 1\n" + BODY,
        b"retired 0 1 2 3\n" + BODY,
        b"retired 2 1 9\n" + BODY,
        b"retired 0 -1 9\n" + BODY,
        b"retired 0 01 9\n" + BODY,
        b"retired 0 9 %d\n" % MAX_SIZE + BARE,
        b"retired \xff 1 1\n" + BODY,
    ],
)
def test_malformed_history_is_refused(text: bytes) -> None:
    with pytest.raises(TrustError, match="STO-L003"):
        parse_history(text)


@pytest.mark.parametrize("text", [b"retired 0 1 1\n", b"retired 0 1 1\nnonsense\n"])
def test_history_without_a_policy_is_refused(text: bytes) -> None:
    with pytest.raises(TrustError, match="STO-L003"):
        parse_history(text)


WORDS = [*render_policies(POLICY).split(), b"\n", b"retired", b"# retired", b"\xff"]


@given(st.lists(st.sampled_from(WORDS), max_size=30).map(b" ".join) | st.binary())
def test_any_text_is_a_policy_with_history_or_our_error(text: bytes) -> None:
    try:
        policy = parse_policies(text)
    except TrustError:
        return
    assert parse_policies(render_policies(policy)) == policy

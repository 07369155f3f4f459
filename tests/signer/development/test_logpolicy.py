"""Other witnesses in the configuration: the release remembers those of before."""

from pathlib import Path

import pytest

from stoilo.audit.format.checkpoint import Checkpoint, render_checkpoint
from stoilo.audit.format.note import (
    KeyType,
    Note,
    cosign_note,
    parse_note,
    render_note,
    sign_note,
)
from stoilo.audit.format.policy import LogPolicy, Witness, open_checkpoint
from stoilo.audit.witness.settings import NO_WITNESSES
from stoilo.core.errors import TrustError
from stoilo.executor.verifier.release.trust import load_trust
from stoilo.signer.development.root import create_development_root
from stoilo.signer.keyfiles import read_private_key
from stoilo.signer.process.checkpoint_memory import LEDGER_FILE, CheckpointLedger
from tests.support.gate import INSTALLED, NOW
from tests.support.notekeys import NoteKey

ORIGIN = "project.example/log"
HEAD = Checkpoint(ORIGIN, 7, b"\5" * 32)
OLD, NEW = (
    NoteKey.from_seed(f"{name}.test", KeyType.COSIGNATURE, bytes([seed]) * 32)
    for seed, name in enumerate(["old", "new"], start=1)
)


def witnessed_by(key: NoteKey) -> LogPolicy:
    return LogPolicy((), (Witness("w", key.vkey),), (), "w")


def policy_after(directory: Path, *changes: LogPolicy) -> LogPolicy:
    """The log policy that hosts get after the operator made these changes, one a day."""
    for day, witnesses in enumerate(changes):
        create_development_root(
            directory,
            ORIGIN,
            NOW + day * 86_400,
            installed=INSTALLED,
            witnesses=witnesses,
        )
        ledger = CheckpointLedger(directory / "state" / LEDGER_FILE)
        if ledger.last.size == 0:
            ledger.record(HEAD)
    root = (directory / "root.json").read_bytes()
    return load_trust(
        directory, root, NOW + len(changes) * 86_400, installed=INSTALLED
    ).log_policy


def note_of(directory: Path, witness: NoteKey | None, time: int) -> bytes:
    body = render_checkpoint(HEAD)
    log = read_private_key(directory / "online" / "log.pem").key
    items = [sign_note(body, ORIGIN, log)]
    if witness is not None:
        items.append(cosign_note(body, witness.vkey.name, witness.private, time))
    note = render_note(Note(body, tuple(items)))
    assert parse_note(note).text == body
    return note


def test_what_old_witnesses_saw_stays_good_after_a_change(tmp_path: Path) -> None:
    policy = policy_after(tmp_path, witnessed_by(OLD), witnessed_by(NEW))
    assert open_checkpoint(note_of(tmp_path, OLD, NOW), policy).retired
    assert not open_checkpoint(note_of(tmp_path, NEW, NOW), policy).retired
    (older,) = policy.older
    assert (older.until, older.max_size) == (NOW + 86_400, HEAD.size)
    with pytest.raises(TrustError, match="STO-L013"):
        open_checkpoint(note_of(tmp_path, OLD, NOW + 86_401), policy)


def test_starting_again_changes_nothing(tmp_path: Path) -> None:
    two = (witnessed_by(OLD), witnessed_by(NEW))
    policy = policy_after(tmp_path, *two)
    assert policy_after(tmp_path, two[1], two[1]) == policy


def test_log_without_witnesses_is_not_believed_once_there_are_some(
    tmp_path: Path,
) -> None:
    """A thief of the log's key could show a short fork under the old rule."""
    policy = policy_after(tmp_path, NO_WITNESSES, witnessed_by(NEW))
    assert policy.older == ()
    with pytest.raises(TrustError, match="STO-L013"):
        open_checkpoint(note_of(tmp_path, None, NOW), policy)


def test_witnesses_may_be_given_up_again(tmp_path: Path) -> None:
    policy = policy_after(tmp_path, witnessed_by(OLD), NO_WITNESSES)
    assert len(policy.older) == 1
    assert not open_checkpoint(note_of(tmp_path, None, NOW), policy).retired

from pathlib import Path

import pytest

from stoilo.audit.format.merkle import Checkpoint, render_checkpoint
from stoilo.audit.format.note import (
    KeyType,
    Note,
    cosign_note,
    parse_note,
    render_note,
    sign_note,
)
from stoilo.audit.format.policy import LogPolicy, Witness, open_checkpoint
from stoilo.audit.witness.client import NO_WITNESSES
from stoilo.core.errors import TrustError
from stoilo.executor.verifier.trust import DEVELOPMENT_MARK, load_trust
from stoilo.signer.development.root import create_development_root
from stoilo.signer.key_files import read_private_key
from stoilo.signer.process.memory import LEDGER_FILE, CheckpointLedger
from stoilo.signer.release_directory import marks_of, read_release
from tests.support.gate import DAY_S, INSTALLED, NOW, epoch_at
from tests.support.notekeys import NoteKey

ORIGIN = "project.example/log"


def make(directory: Path, now: int = NOW, origin: str = ORIGIN) -> dict[str, bytes]:
    create_development_root(directory, origin, now, installed=INSTALLED)
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def test_root_is_marked_as_one_of_development(tmp_path: Path) -> None:
    assert marks_of(make(tmp_path / "r")["root.json"]) == {DEVELOPMENT_MARK}


def test_nothing_changes_when_made_again(tmp_path: Path) -> None:
    assert make(tmp_path / "r") == make(tmp_path / "r", NOW + 60)


def test_every_key_is_another_one(tmp_path: Path) -> None:
    files = make(tmp_path / "r")
    keys = [data for name, data in files.items() if name.endswith(".pem")]
    assert len(keys) == 15
    assert len(set(keys)) == len(keys)


def test_keys_are_closed_to_others(tmp_path: Path) -> None:
    make(tmp_path / "r")
    root = tmp_path / "r"
    private = [root, *(root / "online").glob("**"), *(root / "offline").glob("**")]
    for path in (*private, *root.rglob("*.pem"), *(root / "state").rglob("*.json")):
        assert path.stat().st_mode & 0o077 == 0, path


def test_key_that_others_could_read_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "r")
    (tmp_path / "r" / "online" / "log.pem").chmod(0o644)
    with pytest.raises(TrustError, match="STO-K003"):
        make(tmp_path / "r")


def test_directory_of_another_project_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "r")
    with pytest.raises(TrustError, match="STO-K029"):
        make(tmp_path / "r", origin="elsewhere.example/log")
    assert make(tmp_path / "r")  # and was not changed by the refusal


def test_what_an_earlier_policy_wants_reviewed_stays_certified(tmp_path: Path) -> None:
    first, second = "1" * 64, "2" * 64

    def make_with(policies: tuple[str, ...], reviewed: dict[str, list[str]]):
        return create_development_root(
            tmp_path / "r",
            ORIGIN,
            NOW,
            installed=INSTALLED,
            policies=policies,
            reviewed=reviewed,
        ).trust

    make_with((first,), {first: ["pure"]})
    trust = make_with((second, first), {second: []})
    assert trust.needs_review(first, "pure")
    assert not trust.needs_review(second, "pure")
    assert not make_with((second,), {}).needs_review(first, "pure")


def test_lost_memory_of_the_log_is_not_made_anew(tmp_path: Path) -> None:
    make(tmp_path / "r")
    (tmp_path / "r" / "state" / "checkpoint.json").unlink()
    assert "state/checkpoint.json" not in make(tmp_path / "r")


@pytest.mark.parametrize("days", [0, 12, 13, 27, 40, 200, 400])
def test_an_epoch_is_open_for_a_full_admission_on_any_day(
    tmp_path: Path, days: int
) -> None:
    make(tmp_path / "r")
    later = NOW + days * DAY_S
    root = create_development_root(tmp_path / "r", ORIGIN, later, installed=INSTALLED)
    assert epoch_at(root.trust, later, 14 * DAY_S - 3600) is not None


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
        read_release(directory), root, NOW + len(changes) * 86_400, installed=INSTALLED
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

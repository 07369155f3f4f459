"""Checkpoints: hostile files, bound to admission and computer; damage begins again."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.types import RunLimits
from stoilo.executor.verifier.checkpoints import (
    CHECKPOINT_FILE,
    KEY_FILE,
    Checkpoint,
    CheckpointFile,
    parse_checkpoint,
    render_checkpoint,
)

ADMISSION, OTHER = "ab" * 32, "cd" * 32
LIMITS = RunLimits(cpu_s=10, wall_s=20, result_bytes=4000)
KEPT = Checkpoint(ADMISSION, 3, b"state", cpu_s=4.5, wall_s=6.0, fraction=0.25)
KEY = bytes(range(32))


@pytest.fixture
def slot(tmp_path):
    (tmp_path / "slot").mkdir()
    return tmp_path / "slot"


@pytest.fixture
def file(tmp_path, slot):
    (tmp_path / "state").mkdir()
    return CheckpointFile(slot, tmp_path / "state", 10**6)


def test_what_was_saved_is_loaded(file):
    assert file.load(ADMISSION, LIMITS) is None
    assert file.save(KEPT)
    assert file.load(ADMISSION, LIMITS) == KEPT


def test_newer_one_replaces_and_leaves_nothing_beside(file, slot):
    file.save(KEPT)
    newer = Checkpoint(ADMISSION, 4, b"more")
    file.save(newer)
    assert file.load(ADMISSION, LIMITS) == newer
    assert [path.name for path in slot.iterdir()] == [CHECKPOINT_FILE]


def test_forgotten_one_is_gone(file):
    file.save(KEPT)
    file.forget()
    file.forget()
    assert file.load(ADMISSION, LIMITS) is None


def test_other_admission_begins_from_the_beginning(file):
    file.save(KEPT)
    assert file.load(OTHER, LIMITS) is None


def test_planted_file_is_worth_nothing(file, slot, tmp_path):
    file.save(KEPT)
    (slot / CHECKPOINT_FILE).write_bytes(render_checkpoint(KEPT, KEY))
    assert file.load(ADMISSION, LIMITS) is None
    (tmp_path / "state" / KEY_FILE).write_bytes(KEY)  # the control: the key is why
    assert file.load(ADMISSION, LIMITS) == KEPT


@pytest.mark.parametrize("kind", ["link", "directory", "pipe", "large", "empty"])
def test_what_is_no_checkpoint_begins_from_the_beginning(file, slot, kind):
    file.save(KEPT)
    path = slot / CHECKPOINT_FILE
    path.rename(slot / "real")
    match kind:
        case "link":
            path.symlink_to("real")
        case "directory":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case _:
            path.write_bytes(b"x" * (10**5 if kind == "large" else 0))
    assert file.load(ADMISSION, LIMITS) is None


@pytest.mark.parametrize(
    "changed",
    [
        Checkpoint(ADMISSION, 0, b"s"),
        Checkpoint(ADMISSION, 1, b""),
        Checkpoint(ADMISSION, 1, bytes(1001)),
        Checkpoint(ADMISSION, 1, b"s", cpu_s=11.0),
        Checkpoint(ADMISSION, 1, b"s", cpu_s=-1.0),
        Checkpoint(ADMISSION, 1, b"s", wall_s=21.0),
        Checkpoint(ADMISSION, 1, b"s", fraction=1.5),
    ],
)
def test_numbers_that_no_run_has_are_not_used(file, changed):
    file.save(changed)
    assert file.load(ADMISSION, LIMITS) is None


def test_checkpoint_that_leaves_no_room_is_not_written(tmp_path, slot):
    file = CheckpointFile(slot, tmp_path, 500)
    assert not file.save(Checkpoint(ADMISSION, 1, bytes(400)))
    assert list(slot.iterdir()) == []


def test_damaged_key_is_made_anew(file, tmp_path):
    file.save(KEPT)
    key = tmp_path / "state" / KEY_FILE
    assert key.stat().st_mode & 0o077 == 0
    key.write_bytes(b"short")
    assert file.load(ADMISSION, LIMITS) is None
    file.save(KEPT)
    assert file.load(ADMISSION, LIMITS) == KEPT


@given(st.binary(max_size=300))
def test_any_bytes_end_in_nothing(data):
    assert parse_checkpoint(data, KEY) is None


@given(st.data())
def test_any_changed_byte_is_noticed(data):
    good = render_checkpoint(KEPT, KEY)
    at = data.draw(st.integers(0, len(good) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != good[at]))
    assert parse_checkpoint(good[:at] + bytes([other]) + good[at + 1 :], KEY) is None


def test_time_used_before_counts():
    left = KEPT.limits_left(LIMITS)
    assert (left.cpu_s, left.wall_s, left.result_bytes) == (5, 14, 4000)
    spent = Checkpoint(ADMISSION, 1, b"s", cpu_s=10.5, wall_s=20.5)
    assert (spent.limits_left(LIMITS).cpu_s, spent.limits_left(LIMITS).wall_s) == (1, 1)

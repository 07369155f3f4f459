"""Durable writes: old content or new, exact modes, no link followed; bounded reads."""

import errno
import os
from pathlib import Path

import pytest

from stoilo.core.files import draft_of, read_bounded, sync_directory, write_durably


def test_written_file_has_content_and_exact_mode_whatever_the_umask(tmp_path: Path):
    old = os.umask(0o077)
    try:
        write_durably(tmp_path / "a", b"x", mode=0o644)
    finally:
        os.umask(old)
    assert (tmp_path / "a").read_bytes() == b"x"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o644


def test_failure_while_writing_leaves_the_old_content_and_no_draft(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"old")

    def pieces():
        yield b"ne"
        raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OSError, match="full"):
        write_durably(tmp_path / "a", pieces())
    assert (tmp_path / "a").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_link_planted_as_draft_is_not_written_through(tmp_path: Path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    draft_of(tmp_path / "a").symlink_to(victim)
    write_durably(tmp_path / "a", b"x")
    assert victim.read_bytes() == b"mine"


def test_name_is_flushed_after_the_bytes_and_the_directory_last(tmp_path, monkeypatch):
    seen = []
    real = os.fsync

    def watched(descriptor: int) -> None:
        seen.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    write_durably(tmp_path / "a", b"x")
    assert seen == [str(draft_of(tmp_path / "a")), str(tmp_path)]


def test_file_at_the_bound_is_read_and_one_above_is_refused(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"1234")
    assert read_bounded(tmp_path / "a", 4) == b"1234"
    with pytest.raises(OSError, match="larger than 3") as refused:
        read_bounded(tmp_path / "a", 3)
    assert refused.value.errno == errno.EFBIG


def test_link_and_pipe_are_not_read(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(OSError):  # noqa: PT011 - the number depends on the kind
            read_bounded(tmp_path / name, 9)


def test_directory_that_is_none_cannot_be_flushed(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"1")
    with pytest.raises(NotADirectoryError):
        sync_directory(tmp_path / "a")

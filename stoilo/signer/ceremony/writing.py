"""A release directory's files: put there whole, durably, and never half."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

from stoilo.core.errors import TrustError
from stoilo.signer.ceremony.changes import NewTarget
from stoilo.signer.keyfiles import sync_directory

__all__ = ["ReleaseWriter"]

_CHUNK: Final = 1024 * 1024


class ReleaseWriter:
    """Writes a directory's files durably, each replaced as a whole.

    Args:
        directory: the release's.
        public: whether every user of this machine may read them.
    """

    def __init__(self, directory: Path, *, public: bool) -> None:
        self._directory = directory
        self._file_mode = 0o644 if public else 0o600
        self._folder_mode = 0o755 if public else 0o700

    def write(self, name: str, data: bytes) -> None:
        """Write one small file, unless it is there already."""
        path = self._directory / name
        if path.is_file() and path.read_bytes() == data:
            return
        temporary = self._open_beside(path)
        with temporary.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        self._put(temporary, path)

    def store(self, target: NewTarget) -> None:
        """Copy one target, checked against its digest while it is copied."""
        path = self._directory / "targets" / target.stored
        if isinstance(target.content, bytes):
            self.write(f"targets/{target.stored}", target.content)
            return
        if path.is_file() and path.stat().st_size == target.size:
            return  # named by its digest, and only ever put there whole
        temporary = self._open_beside(path)
        state = hashlib.sha256()
        with target.content.open("rb") as source, temporary.open("wb") as stream:
            while block := source.read(_CHUNK):
                state.update(block)
                stream.write(block)
            stream.flush()
            os.fsync(stream.fileno())
        if state.hexdigest() != target.digest:
            temporary.unlink()
            raise TrustError("STO-K056", f"{target.name} changed while it was copied")
        self._put(temporary, path)

    def below(self, folder: str) -> tuple[str, ...]:
        """Return the names of all files below `folder`."""
        paths = (self._directory / folder).rglob("*")
        return tuple(
            path.relative_to(self._directory).as_posix()
            for path in sorted(paths)
            if path.is_file()
        )

    def remove(self, name: str) -> None:
        """Remove one file, and its folders when nothing else is in them."""
        path = self._directory / name
        path.unlink(missing_ok=True)
        for folder in path.parents:
            if folder == self._directory or any(folder.iterdir()):
                break
            folder.rmdir()

    def _open_beside(self, path: Path) -> Path:
        """Return a fresh temporary file beside `path`."""
        folders = [*reversed(path.relative_to(self._directory).parents)]
        for folder in folders:
            (self._directory / folder).mkdir(mode=self._folder_mode, exist_ok=True)
        temporary = path.with_name(f".{path.name}.new")
        temporary.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        os.close(os.open(temporary, flags, self._file_mode))
        temporary.chmod(self._file_mode)
        return temporary

    def _put(self, temporary: Path, path: Path) -> None:
        temporary.replace(path)
        sync_directory(path.parent)

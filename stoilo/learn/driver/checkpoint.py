"""A run on disk: a small file, replaced as a whole, that names arrays written once.

    FOLDER/run.json         what is plain, and where each array lies
    FOLDER/arrays/N…        packs of arrays: see `stoilo.learn.driver.array_files`
    FOLDER/history.jsonl    as long as run.json says; what is behind that is cut off
    FOLDER/lock             locked by the process that trains there

Nothing in it is code. After a crash at any moment the state that was saved last is there.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from safetensors import SafetensorError

from stoilo.core.errors import InternalError, UsageError
from stoilo.core.files import write_durably
from stoilo.learn.core.orders import Plain, State
from stoilo.learn.driver.array_files import Packs, Place, damaged


_TURN = threading.Lock()
_HOLDERS: dict[Path, FolderLock] = {}


class FolderLock:
    """The right to write in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._descriptor = -1
        self._is_lost = False

    def take(self) -> None:
        """Lock the folder; a run of this process that held it has lost it.

        Raises:
            UsageError: ``STO-T023`` when another process trains there.
        """
        with _TURN:
            # A notebook's interrupted cell holds it still: the newer run takes over.
            before = _HOLDERS.pop(self._folder.resolve(), None)
            if before is not None:
                before.close(is_lost=True)
            self._descriptor, self._is_lost = _lock(self._folder), False
            _HOLDERS[self._folder.resolve()] = self

    def check(self) -> None:
        """Make sure that the folder was not lost.

        Raises:
            UsageError: ``STO-T023`` when it was.
        """
        if self._is_lost:
            raise _taken("another run of this process", self._folder)

    def free(self) -> None:
        """Let the folder go, if it is held."""
        with _TURN:
            if _HOLDERS.get(self._folder.resolve()) is self:
                del _HOLDERS[self._folder.resolve()]
            self.close()

    def close(self, *, is_lost: bool = False) -> None:
        """Close the file, and with it the lock; `is_lost`: another run has it now."""
        self._is_lost = self._is_lost or is_lost
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _lock(folder: Path) -> int:
    """Return the descriptor that keeps other processes out; -1 where none can be kept."""
    try:
        import fcntl  # noqa: PLC0415 - not on every system
    except ImportError:
        return -1
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise _taken("another process", folder) from None
    return lock


def _taken(by: str, folder: Path) -> UsageError:
    return UsageError(
        "STO-T023",
        f"{by} trains in {folder.name}",
        hint="wait for it or end it, or give another folder",
    )


NAME = "run.json"
_FORMAT = "stoilo-run-2"
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
MOST_BYTES = 1 << 30  # A larger `run.json` is not read


@dataclass(frozen=True, slots=True)
class Lines:
    """The end of a file that grows: `data` stands at `start`, bytes, and nothing after it."""

    path: Path
    start: int
    data: bytes


class Checkpoint:
    """The saved state of one run; may be written from any thread, one at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._packs = Packs(folder / "arrays")
        self._turn = threading.Lock()
        self._lock = FolderLock(folder)
        self._plain_bytes = 0

    @property
    def written_bytes(self) -> int:
        """How many bytes this object wrote, files that are gone included."""
        return self._packs.written_bytes + self._plain_bytes

    def open(self) -> State | None:
        """Return the saved state, or None when there is none; the folder is ours then.

        Raises:
            TrustError: ``STO-T011`` when a file is not one of ours or is damaged.
            UsageError: ``STO-T023`` when another process trains there.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock.take()
        try:
            return self._read()
        except BaseException:
            self.close()
            raise

    def _read(self) -> State | None:
        path = self.folder / NAME
        try:
            if path.stat().st_size > MOST_BYTES:
                raise damaged(f"{NAME} is too large")
            whole = json.loads(path.read_bytes())
            if whole["format"] != _FORMAT:
                raise damaged(f"{NAME} was not written by this version")
            places = self._parse_places(whole["arrays"])
            state = whole["state"]
        except FileNotFoundError:
            return None
        except (*_MALFORMED, OSError) as error:
            raise damaged(f"{NAME}: {type(error).__name__}") from None
        if not isinstance(state, dict):
            raise damaged("its state has no names")
        return State(self._packs.read(places), cast("Mapping[str, Plain]", state))

    def write(self, state: State, lines: Lines | None = None) -> None:
        """Replace the saved state; after a crash either the old or the new one is there.

        Args:
            state: all of it; its arrays must never change afterwards.
            lines: that the state counts on: written first.

        Raises:
            InternalError: ``STO-T022`` when the disk does not take it; the old one stays.
            UsageError: ``STO-T023`` when another run of this process trains there now.
        """
        with self._turn:
            self._lock.check()
            try:
                self._write(state, lines)
            except (OSError, SafetensorError, ValueError, MemoryError) as error:
                self._packs.forget()
                raise InternalError(
                    "STO-T022",
                    f"the training cannot be saved: {error}",
                    hint="make room on the disk; the run goes on from what it saved last",
                ) from error
            except BaseException:
                self._packs.forget()
                raise

    def _write(self, state: State, lines: Lines | None) -> None:
        if lines is not None:
            # Before the state that counts on them; what is behind is cut off when read.
            _write_lines(lines)
            self._plain_bytes += len(lines.data)
        places = self._packs.write(state.tensors)
        whole = {
            "format": _FORMAT,
            "arrays": self._render_places(places),
            "state": state.plain,
        }
        data = json.dumps(whole, allow_nan=False, separators=(",", ":")).encode()
        draft = self.folder / f"{NAME}.new"
        write_durably(self.folder / NAME, data, mode=0o600, draft=draft)
        self._plain_bytes += len(data)
        self._packs.keep(places, state.tensors)

    def _render_places(self, places: Mapping[str, Place]) -> dict[str, Plain]:
        """Return name → name there, by packs; True for a pack as it is."""
        packs: dict[str, dict[str, Plain]] = {}
        for name, place in places.items():
            packs.setdefault(place.pack, {})[name] = place.name
        return {pack: self._shorten(pack, names) for pack, names in packs.items()}

    def _shorten(self, pack: str, names: dict[str, Plain]) -> Plain:
        is_whole = all(name == there for name, there in names.items())
        is_whole = is_whole and names.keys() == self._packs.names(pack)
        return True if is_whole else names

    def _parse_places(self, plain: Mapping[str, object]) -> dict[str, Place]:
        """Return what `_render_places` made."""
        places: dict[str, Place] = {}
        for pack, names in plain.items():
            if not pack.isdecimal():
                raise damaged(f"{NAME} names a strange file")
            if names is True:
                places |= {n: Place(pack, n) for n in self._packs.names(pack)}
            else:
                table = cast("Mapping[str, str]", names)
                places |= {name: Place(pack, there) for name, there in table.items()}
        return places

    def close(self) -> None:
        """Let the folder go."""
        self._lock.free()


def _write_lines(lines: Lines) -> None:
    with lines.path.open("r+b" if lines.path.exists() else "w+b") as file:
        file.seek(lines.start)
        file.truncate()
        file.write(lines.data)
        file.flush()
        os.fsync(file.fileno())

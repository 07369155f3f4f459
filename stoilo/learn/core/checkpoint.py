"""A run on disk: a small file, replaced as a whole, that names arrays written once.

    FOLDER/run.json         what is plain, and where each array lies
    FOLDER/arrays/N…        packs of arrays: see `stoilo.learn.core.checkpoint`
    FOLDER/history.jsonl    as long as run.json says; what is behind that is cut off
    FOLDER/lock             locked by the process that trains there

Nothing in it is code. After a crash at any moment the state that was saved last is there.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from stoilo.core.errors import (
    InternalError,
    TrustError,
    UnreachableError,
    UsageError,
)
from stoilo.core.files import sync_directory, write_durably
from stoilo.learn.core.states import State
from stoilo.learn.core.tensors import Array, Tensors

_FORMAT = "stoilo-arrays-1"
_SUFFIX = ".safetensors"
MOST_BYTES = 64 << 30  # A larger file is not read


class Place(NamedTuple):
    """Where an array lies: the pack's name and its own name there."""

    pack: str
    name: str


class Packs:
    """The packs of one folder; one process uses it, one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written_bytes = 0
        self._held: dict[int, tuple[Array, Place]] = {}  # by identity
        self._number = 0

    def _path(self, pack: str) -> Path:
        return self.folder / f"{pack}{_SUFFIX}"

    def read(self, places: Mapping[str, Place]) -> dict[str, Array]:
        """Return the arrays at `places`, each checked against its digest.

        Raises:
            TrustError: ``STO-T011`` when one is missing, damaged, or not one of ours.
        """
        self._number = max(map(int, self._files()), default=0)
        held: dict[Place, Array] = {}
        for pack in sorted({place.pack for place in places.values()}):
            names = {place.name for place in places.values() if place.pack == pack}
            for name, array in self._read_pack(pack, names).items():
                held[Place(pack, name)] = array
        self._held = {id(array): (array, place) for place, array in held.items()}
        return {name: held[place] for name, place in places.items()}

    def _read_pack(self, pack: str, names: Iterable[str]) -> dict[str, Array]:
        path = self._path(pack)
        try:
            if path.stat().st_size > MOST_BYTES:
                raise damaged(f"{path.name} is too large")
            with safe_open(path, framework="numpy") as file:
                about = file.metadata() or {}
                found: dict[str, Array] = {n: file.get_tensor(n) for n in names}
            if about.get("format") != _FORMAT:
                raise damaged(f"{path.name} was not written by a run")
            digests = json.loads(about["digests"])
            if any(digests[name] != digest_of(array) for name, array in found.items()):
                raise damaged(f"{path.name} holds other numbers than were written")
        except (SafetensorError, ValueError, KeyError, TypeError, OSError) as error:
            raise damaged(f"{path.name}: {type(error).__name__}") from None
        return found

    def write(self, tensors: Tensors) -> dict[str, Place]:
        """Return where each array lies; those that lie nowhere go into one new pack.

        By identity: no array is ever changed in place.
        """
        pack = f"{self._number + 1:08d}"
        places: dict[str, Place] = {}
        fresh: dict[int, tuple[Array, Place]] = {}
        for name, array in tensors.items():
            known = self._held.get(id(array)) or fresh.get(id(array))
            if known is None:
                known = fresh[id(array)] = array, Place(pack, name)
            places[name] = known[1]
        if fresh:
            self._write_pack(
                pack, {place.name: array for array, place in fresh.values()}
            )
        self._held |= fresh
        return places

    def _write_pack(self, pack: str, fresh: Tensors) -> None:
        self.folder.mkdir(exist_ok=True)
        path, draft = self._path(pack), self.folder / f"{pack}.new"
        digests = {name: digest_of(array) for name, array in fresh.items()}
        about = {"format": _FORMAT, "digests": json.dumps(digests)}
        whole = {n: np.require(a, requirements="C") for n, a in fresh.items()}
        save_file(whole, draft, about)
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        self.written_bytes += draft.stat().st_size
        draft.replace(path)
        sync_directory(self.folder)
        self._number += 1

    def forget(self) -> None:
        """Drop what is known of arrays: after a write that failed nothing is certain."""
        self._held.clear()
        self._number += 1

    def keep(self, places: Mapping[str, Place], tensors: Tensors) -> None:
        """Remove the packs that nothing at `places` lies in; know no other arrays."""
        packs = {place.pack for place in places.values()}
        alive = {id(array) for array in tensors.values()}
        self._held = {i: one for i, one in self._held.items() if i in alive}
        for name in self._files():
            if name not in packs:
                self._path(name).unlink()

    def _files(self) -> list[str]:
        found = self.folder.glob(f"[0-9]*{_SUFFIX}")
        return [path.stem for path in found if path.stem.isdecimal()]


def digest_of(array: Array) -> str:
    """Return a name for type, shape and numbers of an array."""
    native = array.dtype.newbyteorder("=")
    whole = np.require(array, dtype=native, requirements="C")
    digest = hashlib.sha256(f"{native} {whole.shape}".encode())
    digest.update(np.atleast_1d(whole).view(np.uint8).data if whole.size else b"")
    return digest.hexdigest()


def damaged(why: str) -> TrustError:
    """Return the error for a checkpoint that is not as it was written."""
    return TrustError(
        "STO-T011",
        f"the checkpoint cannot be read: {why}",
        hint="give another folder, or remove it to begin anew",
    )


def lock_file(path: Path) -> int:
    """Return the descriptor that keeps other processes out; -1 where none can be kept.

    Raises:
        UsageError: ``STO-T023`` when another process has it.
        UnreachableError: ``STO-L002`` when the file cannot be opened.
    """
    try:
        import fcntl  # noqa: PLC0415 - not on every system
    except ImportError:
        return -1
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UnreachableError("STO-L002", f"{path.name}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise _taken("another process", path) from None
    return lock


def _taken(by: str, path: Path) -> UsageError:
    place = path.stem if path.name != "lock" else path.parent.name
    return UsageError(
        "STO-T023",
        f"{by} uses {place}",
        hint="wait for it or end it, or give another folder",
    )


NAME = "run.json"
_RUN_FORMAT = "stoilo-run-3"
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
MOST_RUN_BYTES = 1 << 30  # A larger `run.json` is not read


@dataclass(frozen=True, slots=True)
class _Saved:
    """What `run.json` holds."""

    format: str
    arrays: dict[str, Place]
    state: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Lines:
    """The end of a file that grows: `data` stands at `start`, bytes, and nothing after it."""

    path: Path
    start: int
    data: bytes


_HOLDING = threading.Lock()
_HOLDERS: dict[Path, Checkpoint] = {}  # of this process, by folder


class Checkpoint:
    """The saved state of one run; may be written from any thread, one at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._packs = Packs(folder / "arrays")
        self._turn = threading.Lock()
        self._lock = -1
        self._is_lost = False  # to another run of this process
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
        with _HOLDING:
            # A notebook's interrupted cell holds it still: the newer run takes over.
            before = _HOLDERS.pop(self.folder.resolve(), None)
            if before is not None:
                before.lose()
            self._lock, self._is_lost = lock_file(self.folder / "lock"), False
            _HOLDERS[self.folder.resolve()] = self
        try:
            return self._read()
        except BaseException:
            self.close()
            raise

    def peek(self) -> State | None:
        """Return the saved state and take nothing; None while somebody trains there.

        Raises:
            TrustError: ``STO-T011`` when a file is not one of ours or is damaged.
        """
        try:
            self._lock = lock_file(self.folder / "lock")
        except UsageError:
            return None
        try:
            return self._read()
        finally:
            self._let_go()

    def _read(self) -> State | None:
        path = self.folder / NAME
        try:
            if path.stat().st_size > MOST_RUN_BYTES:
                raise damaged(f"{NAME} is too large")
            whole = json.loads(path.read_bytes())
            if whole["format"] != _RUN_FORMAT:
                raise damaged(f"{NAME} was not written by this version")
            saved = msgspec.convert(whole, _Saved)
            if not all(place.pack.isdecimal() for place in saved.arrays.values()):
                raise damaged(f"{NAME} names a strange file")
        except FileNotFoundError:
            return None
        except (*_MALFORMED, OSError) as error:
            raise damaged(f"{NAME}: {type(error).__name__}") from None
        return State(self._packs.read(saved.arrays), saved.state)

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
            if self._is_lost:
                raise _taken("another run of this process", self.folder / "lock")
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
            "format": _RUN_FORMAT,
            "arrays": places,
            "state": state.plain,
        }
        data = json.dumps(whole, allow_nan=False, separators=(",", ":")).encode()
        draft = self.folder / f"{NAME}.new"
        write_durably(self.folder / NAME, data, mode=0o600, draft=draft)
        self._plain_bytes += len(data)
        self._packs.keep(places, state.tensors)

    def close(self) -> None:
        """Let the folder go, if it is held."""
        with _HOLDING:
            if _HOLDERS.get(self.folder.resolve()) is self:
                del _HOLDERS[self.folder.resolve()]
            self._let_go()

    def lose(self) -> None:
        """Let the folder go to another run of this process; nothing is written any more."""
        self._is_lost = True
        self._let_go()

    def _let_go(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1


def _write_lines(lines: Lines) -> None:
    with lines.path.open("r+b" if lines.path.exists() else "w+b") as file:
        file.seek(lines.start)
        file.truncate()
        file.write(lines.data)
        file.flush()
        os.fsync(file.fileno())

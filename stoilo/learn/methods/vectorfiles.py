"""A shard's vectors on disk: each written once, and a few generations to go back to.

A trainer's checkpoint names a generation. It may be killed between a shard's writing and
its own, so that the generation before is still wanted: the last few are kept, and the one
that the checkpoint is known to name, however many came after it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from pathlib import Path

import numpy as np

from stoilo.core.errors import TrustError, UnreachableError
from stoilo.learn.tensors import Array, Tensors

__all__ = ["KEPT", "VectorFiles"]

KEPT = 4
"""Generations that stay."""
WAIT_S = 60.0
"""So long the process of a killed trainer may take to end."""


class VectorFiles:
    """The files of one shard; its process alone uses them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = -1
        self._placed: dict[str, tuple[Array, str, str]] = {}  # array, file, digest
        self._named = 0  # by the checkpoint

    def write(self, vectors: Tensors) -> int:
        """Write what is new of the vectors; return the generation's number.

        Raises:
            UnreachableError: ``STO-T042`` when another process keeps holding the folder.
        """
        self._take_folder()
        number = max(self._generations(), default=0) + 1
        placed: dict[str, tuple[Array, str, str]] = {}
        for name, array in vectors.items():
            before = self._placed.get(name)
            if before is None or before[0] is not array:
                file = f"{number:08d}-{name}.f64"
                before = array, file, self._write_vector(file, array)
            placed[name] = before
        index = {name: [file, digest] for name, (_, file, digest) in placed.items()}
        self._replace(self._index(number), json.dumps(index).encode())
        self._placed = placed
        self._sweep()
        return number

    def read(self, number: int) -> dict[str, Array]:
        """Return the vectors of a generation.

        Raises:
            TrustError: ``STO-T043`` when it is not there, or not as it was written.
            UnreachableError: as `write`.
        """
        self._take_folder()
        try:
            index = json.loads(self._index(number).read_bytes())
            placed = {
                name: (self._read_vector(file, digest), file, digest)
                for name, (file, digest) in index.items()
            }
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise TrustError(
                "STO-T043", f"generation {number} of a shard's vectors cannot be read"
            ) from error
        self._placed, self._named = placed, number
        return {name: array for name, (array, _, _) in placed.items()}

    def keep(self, number: int) -> None:
        """Let a generation stay until another one is named: the checkpoint names it."""
        self._named = number

    def _take_folder(self) -> None:
        """Hold the folder from the first use on."""
        if self._lock < 0:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = _take_lock(self.folder / "lock")

    def _write_vector(self, file: str, array: Array) -> str:
        draft = self.folder / f"{file}.new"
        with draft.open("wb") as opened:
            opened.write(array.tobytes())
            opened.flush()
            os.fsync(opened.fileno())
        draft.replace(self.folder / file)
        return hashlib.sha256(array.tobytes()).hexdigest()

    def _read_vector(self, file: str, digest: str) -> Array:
        content = (self.folder / Path(file).name).read_bytes()
        if hashlib.sha256(content).hexdigest() != digest:
            raise ValueError(file)
        return np.frombuffer(content, np.float64)

    def _replace(self, path: Path, content: bytes) -> None:
        draft = path.with_suffix(".new")
        with draft.open("wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        draft.replace(path)
        place = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(place)
        finally:
            os.close(place)

    def _index(self, number: int) -> Path:
        return self.folder / f"index-{number:08d}.json"

    def _generations(self) -> list[int]:
        found = self.folder.glob("index-*.json")
        return sorted(int(path.stem.removeprefix("index-")) for path in found)

    def _sweep(self) -> None:
        """Remove old generations and the files that none of the kept names."""
        numbers = self._generations()
        kept = {self._named, *numbers[-KEPT:]}.intersection(numbers)
        for number in kept.symmetric_difference(numbers):
            self._index(number).unlink()
        wanted: set[str] = set()
        for number in kept:
            index = json.loads(self._index(number).read_bytes())
            wanted |= {file for file, _ in index.values()}
        for path in self.folder.glob("*.f64*"):
            if path.name not in wanted:
                path.unlink()


def _take_lock(path: Path) -> int:
    """Return the descriptor that keeps others out until this process ends."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if time.monotonic() < until:
                time.sleep(0.05)
                continue
            os.close(descriptor)
            raise UnreachableError(
                "STO-T042", "another training holds a shard's folder"
            ) from error
        return descriptor

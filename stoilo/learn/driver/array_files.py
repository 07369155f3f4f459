"""Arrays on disk: each written once, in files of several that are never changed.

A pack is a safetensors file (arrays only, no code) whose metadata has each array's digest. An
array that is saved again, under the same name or another, is referred to where it lies: by
its identity, since a coordinator never changes an array in place, else by its digest.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from stoilo.core.errors import TrustError
from stoilo.core.files import sync_directory
from stoilo.learn.core.tensors import Array, Tensors


_FORMAT = "stoilo-arrays-1"
_SUFFIX = ".safetensors"
MOST_BYTES = 64 << 30  # A larger file is not read


@dataclass(frozen=True, slots=True)
class Place:
    """Where an array lies: the pack's name and its own name there."""

    pack: str
    name: str


class Packs:
    """The packs of one folder; one process uses it, one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written_bytes = 0
        self._held: dict[int, tuple[Array, Place]] = {}  # by identity
        self._digests: dict[str, Place] = {}
        self._names: dict[str, frozenset[str]] = {}  # of each pack's arrays
        self._number = 0

    def names(self, pack: str) -> frozenset[str]:
        """Return the names of a pack's arrays.

        Raises:
            TrustError: ``STO-T011`` when it is missing, damaged, or not one of ours.
        """
        if pack not in self._names:
            path = self._path(pack)
            try:
                with safe_open(path, framework="numpy") as file:
                    self._names[pack] = frozenset(file.keys())
            except (SafetensorError, OSError) as error:
                raise damaged(f"{path.name}: {type(error).__name__}") from None
        return self._names[pack]

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
            for name, array in found.items():
                if digests[name] != digest_of(array):
                    raise damaged(f"{path.name} holds other numbers than were written")
                self._digests[digests[name]] = Place(pack, name)
        except (SafetensorError, ValueError, KeyError, TypeError, OSError) as error:
            raise damaged(f"{path.name}: {type(error).__name__}") from None
        return found

    def write(self, tensors: Tensors) -> dict[str, Place]:
        """Return where each array lies; those that lie nowhere go into one new pack."""
        pack = f"{self._number + 1:08d}"
        places: dict[str, Place] = {}
        fresh: dict[str, Array] = {}
        digests: dict[str, str] = {}
        new: dict[str, Place] = {}  # known only once they are written
        held_now: dict[int, tuple[Array, Place]] = {}
        for name, array in tensors.items():
            held = self._held.get(id(array)) or held_now.get(id(array))
            if held is None:
                digest = digest_of(array)
                place = self._digests.get(digest) or new.get(digest)
                if place is None:
                    place = new[digest] = Place(pack, name)
                    fresh[name], digests[name] = array, digest
                held = held_now[id(array)] = array, place
            places[name] = held[1]
        if fresh:
            self._write_pack(pack, fresh, digests)
        self._digests |= new
        self._held |= held_now
        return places

    def _write_pack(
        self, pack: str, fresh: Tensors, digests: Mapping[str, str]
    ) -> None:
        self.folder.mkdir(exist_ok=True)
        path, draft = self._path(pack), self.folder / f"{pack}.new"
        about = {"format": _FORMAT, "digests": json.dumps(digests)}
        whole = {n: np.require(a, requirements="C") for n, a in fresh.items()}
        save_file(whole, draft, about)
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        self.written_bytes += draft.stat().st_size
        draft.replace(path)
        sync_directory(self.folder)
        self._number += 1
        self._names[pack] = frozenset(fresh)

    def forget(self) -> None:
        """Drop what is known of arrays: after a write that failed nothing is certain."""
        self._held.clear()
        self._digests.clear()
        self._number += 1

    def keep(self, places: Mapping[str, Place], tensors: Tensors) -> None:
        """Remove the packs that nothing at `places` lies in; know no other arrays."""
        packs = {place.pack for place in places.values()}
        alive = {id(array) for array in tensors.values()}
        self._held = {i: one for i, one in self._held.items() if i in alive}
        self._digests = {d: p for d, p in self._digests.items() if p.pack in packs}
        for name in self._files():
            if name not in packs:
                self._path(name).unlink()
                self._names.pop(name, None)

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

"""What a node holds: files under the digest of what they are, with a note beside each.

Nothing is ever changed: a sum of two parts is a third one, and all three stay until the round
is collected. So whatever dies between receiving and forwarding, each part is still where it
was, and parts whose ids overlap are never added. Nothing is flushed to the disk: `kill -9`
loses nothing, and after a power cut a file that is not its digest's is left out.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec
import numpy as np

from stoilo.core.errors import TrustError, UnreachableError, UsageError
from stoilo.core.files import read_bounded
from stoilo.learn.traffic import wire as w

KEPT_VERSIONS = 64  # newest ones that a node holds
KEPT_BYTES = 20 * 10**9  # of them together
KEPT_OF_TRAINING = 3  # newest of each: of a step only the last one is needed
KEPT_TRAININGS = 16  # that began last
KEPT_ROUNDS = 8  # newest ones whose parts it holds, where nobody collects them
_NOTE = ".note"
WORD = np.dtype("<i8")  # of sums: fixed-point numbers, exact in whatever order


class Kept(NamedTuple):
    """How much of versions a node holds."""

    versions: int = KEPT_VERSIONS
    nbytes: int = KEPT_BYTES

    def choose(self, items: Iterable[w.Item]) -> set[w.Item]:
        """Return which of these stay: newest first, as many as there is room for.

        Those of trainings come before files: a step waits for its version.
        """
        newest = sorted(items, key=lambda one: (one.number, one.digest), reverse=True)
        by_training = dict[str, list[w.Item]]()
        for item in newest:
            by_training.setdefault(item.training, []).append(item)
        files = by_training.pop("", [])[: self.versions]
        steps = [one[:KEPT_OF_TRAINING] for one in by_training.values()]
        chosen, room = set[w.Item](), self.nbytes
        for item in (*itertools.chain(*steps[:KEPT_TRAININGS]), *files):
            if item.size <= room:
                chosen.add(item)
                room -= item.size
        return chosen


class Holdings:
    """Items in a folder; any thread may call.

    Args:
        folder: theirs.
        kept: how much of versions.
        on_forgotten: is told of each version that went for want of room.
    """

    def __init__(
        self,
        folder: Path,
        kept: Kept = Kept(),  # noqa: B008 - immutable
        on_forgotten: Callable[[w.Item], None] = lambda _: None,
    ) -> None:
        self._kept, self._on_forgotten = kept, on_forgotten
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder, self._lock, self._drafts = folder, threading.Lock(), 0
        self._items: set[w.Item] = set()
        for path in folder.iterdir():
            if path.suffix == _NOTE and (item := _read_note(path)) is not None:
                self._items.add(item)
            elif path.suffix == ".draft":
                path.unlink()

    def list(self, number: int | None = None) -> list[w.Item]:
        """Return what is held, of a number or at all, in order."""
        with self._lock:
            found = [one for one in self._items if number in {None, one.number}]
        return sorted(found, key=lambda one: (one.number, one.ids, one.digest))

    def __contains__(self, item: object) -> bool:
        with self._lock:
            return item in self._items

    def wants(self, item: w.Item) -> bool:
        """Say whether there is room for an item beside newer ones."""
        return bool(item.ids) or item in self._kept.choose([*self._versions(), item])

    def find(self, digest: str) -> Path | None:
        """Return where the file of a digest lies, None without one; untrusted.

        A training's versions are nobody's to fetch but its regions'.
        """
        files = (one for one in self._versions() if not one.training)
        found = (one for one in files if one.digest == digest)
        return next((self._folder / one.key for one in found), None)

    def _versions(self) -> Sequence[w.Item]:
        return [one for one in self.list() if not one.ids]

    def open(self, item: w.Item) -> BinaryIO:
        """Return its bytes to read; raises ``STO-T037`` for what is not held."""
        try:
            if item in self:
                return (self._folder / item.key).open("rb")
        except FileNotFoundError:  # dropped at this moment
            pass
        raise UnreachableError("STO-T037", "the node does not hold that")

    def hold(
        self,
        item: w.Item,
        pieces: Iterable[memoryview | bytes],
        onto: w.Item | None = None,
    ) -> w.Item:
        """Hold bytes as they come, or (`onto`) their sum with a held part; return which.

        Args:
            item: what comes.
            pieces: of whole words; raises at its end where they are not `item`: then
                nothing is held.
            onto: what to add it to; both stay what they are.

        Raises:
            UsageError: ``STO-T040``, they have a contribution in common (nothing may count
                twice), are of different rounds or lengths, or their sum does not fit.
        """

        def write(file: BinaryIO) -> w.Item:
            if onto is None:
                file.writelines(pieces)
                return item
            with self.open(onto) as base:
                digest = _write_sum(base, pieces, file)
            ids = tuple(sorted({*onto.ids, *item.ids}))
            return msgspec.structs.replace(item, digest=digest, ids=ids)

        if onto is not None:
            _check_apart(onto, item)
        return self._keep(write)

    def drop(self, number: int, *, sums: bool) -> None:
        """Forget the sums of a round, or a version."""
        for item in self.list(number):
            if bool(item.ids) == sums:
                self._forget(item)

    def _keep(self, write: Callable[[BinaryIO], w.Item]) -> w.Item:
        with self._lock:
            self._drafts += 1
            draft = self._folder / f"{os.getpid()}-{self._drafts}.draft"
        try:
            with draft.open("xb") as file:
                item = write(file)
            note = draft.with_suffix(".note-draft")
            note.write_bytes(msgspec.json.encode(item))
            with self._lock:
                draft.replace(self._folder / item.key)
                note.replace(self._folder / f"{item.key}{_NOTE}")
                self._items.add(item)
        finally:
            draft.unlink(missing_ok=True)
        self._trim(item)
        return item

    def _trim(self, item: w.Item) -> None:
        """Forget the oldest where one more of its kind has come."""
        if item.ids:
            numbers = sorted({one.number for one in self.list() if one.ids})
            for number in numbers[:-KEPT_ROUNDS]:
                self.drop(number, sums=True)
            return
        held = self._versions()
        for old in {*held} - self._kept.choose(held):
            self._forget(old)
            self._on_forgotten(old)

    def _forget(self, item: w.Item) -> None:
        with self._lock:
            self._items.discard(item)
            (self._folder / f"{item.key}{_NOTE}").unlink(missing_ok=True)
            (self._folder / item.key).unlink(missing_ok=True)


def _check_apart(one: w.Item, other: w.Item) -> None:
    places = {(i.place, i.of, i.size) for i in (one, other)}
    is_shared = {*one.ids} & {*other.ids} or not (one.ids and other.ids)
    if is_shared or len(places) > 1 or one.size % WORD.itemsize:
        raise UsageError("STO-T040", "parts with something in common are not added")


def _write_sum(
    base: BinaryIO, pieces: Iterable[memoryview | bytes], file: BinaryIO
) -> str:
    """Write the sum of a part and what comes, and return its digest."""
    state = hashlib.sha256()
    for piece in pieces:
        left = np.frombuffer(base.read(len(piece)), WORD)
        right = np.frombuffer(piece, WORD)
        total = left + right
        if (((left ^ total) & (right ^ total)) < 0).any():
            raise UsageError("STO-T040", "a sum is too large for its numbers")
        state.update(total.data)
        file.write(total.data)
    return state.hexdigest()


def _read_note(path: Path) -> w.Item | None:
    """Return the item of a note whose file is what it says."""
    try:
        item = msgspec.json.decode(read_bounded(path, w.MOST_BYTES), type=w.Item)
        with path.with_suffix("").open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, msgspec.MsgspecError, TrustError):
        return None
    return item if (found, path.stem) == (item.digest, item.key) else None

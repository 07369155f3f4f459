"""What a trainer keeps on disk between epochs whose data comes from outside.

A run over data that another process may not see again cannot be taken up in its middle; what
is saved is the version after each epoch, with the optimiser. A kill costs the epoch's tasks.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Protocol

from stoilo.core.errors import UsageError
from stoilo.learn.checkpoint import Checkpoint
from stoilo.learn.identity import describe
from stoilo.learn.methods.states import (
    join_states,
    load_snapshot,
    read_int,
    save_snapshot,
    select,
)
from stoilo.learn.work import Snapshot, State

__all__ = ["Kept", "Shelf"]


class Kept(Protocol):
    """What steps have beside the model: an optimiser."""

    def save(self) -> State:
        """Return its state."""

    def load(self, state: State) -> None:
        """Go on from a saved state."""


class Shelf:
    """One folder, locked against other processes from `open` to `close`.

    Args:
        folder: where; None keeps nothing.
        kept: saved and loaded with the version; None for nothing.
    """

    def __init__(self, folder: Path | None, kept: Kept | None) -> None:
        self._checkpoint = Checkpoint(folder) if folder else None
        self._kept = kept

    async def open(self, first: Snapshot) -> tuple[Snapshot, int]:
        """Return the newest version and how many epochs led to it: `first` and 0 at first.

        Raises:
            TrustError: ``STO-T011``.
            UsageError: ``STO-T012``, ``STO-T023``, ``STO-T041``.
        """
        if self._checkpoint is None:
            return first, 0
        saved = await asyncio.to_thread(self._checkpoint.open)
        try:
            return (first, 0) if saved is None else self._read(saved, first)
        except BaseException:
            self._checkpoint.close()
            raise

    def _read(self, saved: State, first: Snapshot) -> tuple[Snapshot, int]:
        if saved.plain.get("kept_as") != describe(self._kept):
            raise UsageError(
                "STO-T012",
                "the folder is of another training",
                hint="the same optimiser, and data as before: a dataset or loaders",
            )
        if self._kept is not None:
            self._kept.load(select(saved, "kept"))
        snapshot = load_snapshot(select(saved, "version"), first)
        return snapshot, read_int(saved.plain, "epochs")

    async def put(self, snapshot: Snapshot, epochs: int) -> None:
        """Save a version and how many epochs led to it.

        Raises:
            InternalError: ``STO-T022``.
        """
        if self._checkpoint is None:
            return
        groups = {"version": save_snapshot(snapshot)}
        if self._kept is not None:
            groups["kept"] = self._kept.save()
        whole = join_states(**groups)
        plain = {**whole.plain, "epochs": epochs, "kept_as": describe(self._kept)}
        await asyncio.to_thread(self._checkpoint.write, State(whole.tensors, plain))

    def close(self) -> None:
        """Let the folder go."""
        if self._checkpoint is not None:
            self._checkpoint.close()

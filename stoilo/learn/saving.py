"""What of a run is on disk, and when: the shell between `Run` and its checkpoint.

Everything is written in another thread, so that a notebook goes on, and in the order in which
it was asked for. A save that is cancelled is waited for all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from stoilo.core.errors import UsageError
from stoilo.learn.checkpoint import Checkpoint
from stoilo.learn.history import History, Tally
from stoilo.learn.identity import check_identity
from stoilo.learn.robust import Memory
from stoilo.learn.work import Plain, State

__all__ = ["Keeper", "Saving", "Standing"]


@runtime_checkable
class Keeper(Protocol):
    """What a method has that keeps states of its own beside the checkpoint."""

    def note_saved(self) -> None:
        """Note that the checkpoint names the state that `save` gave last: it must stay."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What a run keeps besides its history.

    Attributes:
        ident: of the run; part of every job's key.
        memory: of the norms of answers so far.
        method: the method's state.
        flights: the orders in flight.
    """

    ident: str
    memory: Memory
    method: State
    flights: State

    def render(self) -> State:
        """Return it as one state."""
        plain: dict[str, Plain] = {
            "ident": self.ident,
            "norms": list(self.memory.norms),
            "samples": list(self.memory.samples),
            "method": dict(self.method.plain),
            "flights": dict(self.flights.plain),
        }
        tensors = {f"method/{n}": a for n, a in self.method.tensors.items()}
        tensors |= {f"flights/{n}": a for n, a in self.flights.tensors.items()}
        return State(tensors, plain)

    @classmethod
    def parse(cls, state: State) -> Standing:
        """Return what `render` gave.

        Raises:
            UsageError: ``STO-T012`` when something is missing.
        """
        ident = state.plain.get("ident")
        norms, samples = state.plain.get("norms"), state.plain.get("samples")
        if not isinstance(ident, str):
            raise UsageError("STO-T012", "the checkpoint is not of a run")
        if not isinstance(norms, list) or not isinstance(samples, list):
            raise UsageError("STO-T012", "the checkpoint has no norms of answers")
        memory = Memory(
            tuple(float(str(norm)) for norm in norms),
            samples=tuple(int(str(size)) for size in samples),
        )
        return cls(ident, memory, _below(state, "method"), _below(state, "flights"))


class Saving:
    """Writes a run's standing and history into its folder.

    Args:
        folder: of the run.
        history: whose lines are written with each save.
        tally: saved with it.
    """

    def __init__(self, folder: Path, history: History, tally: Tally) -> None:
        self.checkpoint = Checkpoint(folder)
        self._history, self._tally = history, tally
        self._identity: Mapping[str, Plain] = {}

    async def open(self, identity: Mapping[str, Plain]) -> Standing | None:
        """Take the folder and return what was saved there; history and tally go on.

        Raises:
            TrustError: ``STO-T011`` when it is damaged.
            UsageError: ``STO-T012`` when it is of another training, ``STO-T023`` when
                another process trains there.
        """
        saved = await asyncio.to_thread(self.checkpoint.open)
        try:
            standing = None if saved is None else self._take_up(saved, dict(identity))
        except BaseException:
            self.checkpoint.close()
            raise
        self._identity = identity
        return standing

    def _take_up(self, saved: State, identity: dict[str, Plain]) -> Standing:
        plain = saved.plain
        check_identity(plain.get("identity"), identity)
        standing = Standing.parse(saved)
        tally, history = plain.get("tally"), plain.get("history")
        self._tally.load(tally if isinstance(tally, dict) else {})
        self._history.load(history if isinstance(history, dict) else {})
        return standing

    async def save(self, standing: Standing) -> None:
        """Write the run as it is now.

        Raises:
            InternalError: ``STO-T022`` when the disk does not take it.
        """
        state = standing.render()
        plain: dict[str, Plain] = {
            **state.plain,
            "identity": dict(self._identity),
            "tally": self._tally.save(),
            "history": self._history.save(),
        }
        work = asyncio.ensure_future(
            asyncio.to_thread(self._write, State(state.tensors, plain))
        )
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])
            raise

    def _write(self, state: State) -> None:
        lines = self._history.unwritten()
        self.checkpoint.write(state, lines)
        if lines is not None:
            self._history.wrote(lines)

    def close(self) -> None:
        """Let the folder go."""
        self.checkpoint.close()


def _below(saved: State, group: str) -> State:
    """Return the part of a saved state below `group`.

    Raises:
        UsageError: ``STO-T012`` when it has none.
    """
    plain = saved.plain.get(group)
    if not isinstance(plain, dict):
        raise UsageError("STO-T012", f"the checkpoint has no {group}")
    start = f"{group}/"
    tensors = {
        name.removeprefix(start): array
        for name, array in saved.tensors.items()
        if name.startswith(start)
    }
    return State(tensors, plain)

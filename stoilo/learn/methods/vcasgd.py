"""VC-ASGD: asynchronous training made for volunteers (Atre, Jha, Rao 2021).

A volunteer trains locally on one part of the data, from the parameters at hand-out, and gives
its parameters back; each answer is mixed in at once, in the order of arrival:
``W ← a·W + (1 - a)·W_c``. An epoch is each part once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import Order, Reply, Snapshot
from stoilo.learn.core.tensors import Array, Tensors, mix
from stoilo.learn.methods.base import (
    APPLY,
    Ledger,
    LocalWork,
    MethodBase,
    Outcome,
    Piece,
    Staleness,
    check_parts,
    derive_seed,
    shuffle,
)

# Share of the server's own parameters: constant, or growing with the epoch e = 1, 2, …
Alpha = float | Literal["e/(e+1)"]
_GROWING = "e/(e+1)"


@dataclass(frozen=True, slots=True)
class VcasgdSettings:
    """How to train."""

    epochs: int  # passes over all parts
    local: LocalWork  # what a volunteer does with its part
    alpha: Alpha = 0.95  # share that the server's own parameters keep at each answer
    # An order starts from the "latest" parameters, or from those at the beginning of
    # the "epoch"
    pull: Literal["latest", "epoch"] = "latest"
    # "mix" as published; "delta" is our variant, which adds ``(1 - a)(W_c - W_base)``
    # and so does not pull back to the base of a stale answer
    mode: Literal["mix", "delta"] = "mix"
    # What older answers are worth; a discarded part is ordered again
    staleness: Staleness = APPLY
    seed: int = 0  # of the parts' order and of the volunteers' shuffling

    def __post_init__(self) -> None:
        """Refuse what cannot train."""
        alpha = self.alpha
        fits = alpha == _GROWING if isinstance(alpha, str) else 0.0 <= alpha < 1.0
        if not fits or self.epochs < 1:
            raise UsageError(
                "STO-T040",
                f"alpha {self.alpha!r} or epochs {self.epochs} do not describe a training",
                hint="0 ≤ alpha < 1 or 'e/(e+1)', epochs ≥ 1",
            )

        if self.pull == "epoch" and self.staleness.limit is not None:
            raise UsageError(
                "STO-T040",
                "with pull='epoch' a discarded part would be as stale the next time",
                hint="no limit of staleness, or pull='latest'",
            )

    def keep(self, epoch: int) -> float:
        """Return the share that the server's parameters keep in an epoch, from 0."""
        if isinstance(self.alpha, str):
            # e/(e+1) with e from 1, epochs here from 0.
            return (epoch + 1) / (epoch + 2)
        return self.alpha


class Vcasgd(MethodBase):
    """Parameters of volunteers mixed into the server's, one by one."""

    kept = MethodBase.kept | {
        "_base": Snapshot,
        "_epoch": int,
        "_tries": dict[str, int],
    }
    parts = ("_ledger",)

    def __init__(
        self, start: Snapshot, parts: Sequence[int], settings: VcasgdSettings
    ) -> None:
        super().__init__(start)
        self.settings = settings
        self._parts = check_parts(parts)
        self._base = start
        self._epoch = 0
        self._tries: dict[str, int] = {}  # part → how often discarded in this epoch
        self._ledger = self._open()

    @property
    def finished(self) -> bool:
        """Whether all epochs are done."""
        return self._epoch >= self.settings.epochs

    def lose(self, order: Order) -> None:
        """Give the part out again, from newer parameters."""
        if self._is_open(order):
            self._ledger.lose(str(order.part))

    def _draw(self, room: int) -> Sequence[str]:
        return self._ledger.draw(room)

    def _count(self, order: Order, reply: Reply, staleness: int) -> Outcome:
        epoch, part = min(self._epoch, self.settings.epochs - 1), str(order.part)
        weight = self.settings.staleness.weigh(staleness)
        if not self._is_open(order):
            return Outcome(applied=False, epoch=epoch)
        if not weight:
            self._ledger.lose(part)
            # Part of the key: the same part again is another task, not the old one.
            self._tries[part] = self._tries.get(part, 0) + 1
            return Outcome(applied=False, epoch=epoch)
        self._mix(order, reply, weight)
        return Outcome(applied=True, epoch=epoch, ended=self._close(part))

    def _open(self) -> Ledger:
        order = shuffle(len(self._parts), self.settings.seed, self._epoch)
        return Ledger(str(part) for part in order.tolist())

    def _key(self, part: int) -> str:
        tries = self._tries.get(str(part), 0)
        again = f"/t{tries}" if tries else ""
        return f"e{self._epoch}/p{part}{again}"

    def _is_open(self, order: Order) -> bool:
        out = str(order.part) in self._ledger.outstanding
        return out and order.key == self._key(order.part)

    def _order(self, name: str) -> Order:
        part = int(name)
        base = self._snapshot if self.settings.pull == "latest" else self._base
        seed = derive_seed(self.settings.seed, self._epoch, part)
        piece, local = Piece(part, self._parts[part]), self.settings.local
        return piece.order(self._key(part), base, seed, local)

    def _mix(self, order: Order, reply: Reply, weight: float) -> None:
        # An answer that is worth less leaves more of the server's own.
        kept = 1.0 - (1.0 - self.settings.keep(self._epoch)) * weight
        now = self._snapshot
        if self.settings.mode == "delta":
            base = order.snapshot
            parameters = _shift(now.parameters, reply.tensors, base.parameters, kept)
            buffers = _shift(now.buffers, reply.buffers, base.buffers, kept)
        else:
            parameters = mix(now.parameters, reply.tensors, kept)
            buffers = mix(now.buffers, reply.buffers, kept)
        self._snapshot = Snapshot(now.version + 1, parameters, buffers)

    def _close(self, part: str) -> bool:
        self._ledger.answer(part)
        if self._ledger.answered < self._ledger.size:
            return False
        self._epoch += 1
        self._base, self._tries = self._snapshot, {}
        self._ledger = self._open()
        return True


def _shift(
    now: Tensors, after: Tensors, before: Tensors, kept: float
) -> dict[str, Array]:
    """Return ``now + (1 - kept)(after - before)``; whole numbers stay."""
    return {
        name: (array + (1.0 - kept) * (after[name] - before[name])).astype(array.dtype)
        if np.issubdtype(array.dtype, np.floating)
        else array
        for name, array in now.items()
    }

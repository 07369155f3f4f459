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
from stoilo.learn.methods.ledger import Ledger
from stoilo.learn.methods.plans import (
    APPLY,
    LocalWork,
    Staleness,
    check_parts,
    derive_seed,
    shuffle,
)
from stoilo.learn.methods.states import (
    load_snapshot,
    read_int,
    read_table,
    save_snapshot,
)
from stoilo.learn.tensors import Array, Tensors, mix
from stoilo.learn.work import Order, Plain, Reply, Snapshot, State, Update

__all__ = ["Alpha", "Vcasgd", "VcasgdSettings"]

Alpha = float | Literal["e/(e+1)"]
"""Share of the server's own parameters: constant, or growing with the epoch e = 1, 2, …"""
_GROWING = "e/(e+1)"


@dataclass(frozen=True, slots=True)
class VcasgdSettings:
    """How to train.

    Attributes:
        epochs: passes over all parts.
        local: what a volunteer does with its part.
        alpha: share that the server's own parameters keep at each answer.
        pull: an order starts from the "latest" parameters, or from those at the
            beginning of the "epoch".
        mode: "mix" as published; "delta" is our variant, which adds ``(1 - a)(W_c - W_base)``
            and so does not pull back to the base of a stale answer.
        staleness: what older answers are worth; a discarded part is ordered again.
        seed: of the parts' order and of the volunteers' shuffling.
    """

    epochs: int
    local: LocalWork
    alpha: Alpha = 0.95
    pull: Literal["latest", "epoch"] = "latest"
    mode: Literal["mix", "delta"] = "mix"
    staleness: Staleness = APPLY
    seed: int = 0

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
            return (epoch + 1) / (epoch + 2)
        return self.alpha


class Vcasgd:
    """Parameters of volunteers mixed into the server's, one by one."""

    def __init__(
        self, start: Snapshot, parts: Sequence[int], settings: VcasgdSettings
    ) -> None:
        self.settings = settings
        self._parts = check_parts(parts)
        self._snapshot = self._base = start
        self._epoch = 0
        self._tries: dict[str, int] = {}  # part → how often discarded in this epoch
        self._ledger = self._open()

    @property
    def snapshot(self) -> Snapshot:
        """The newest version."""
        return self._snapshot

    @property
    def finished(self) -> bool:
        """Whether all epochs are done."""
        return self._epoch >= self.settings.epochs

    def next_orders(self, room: int) -> Sequence[Order]:
        """Return further parts of this epoch, each bound to its version now."""
        if self.finished:
            return []
        return [self._order(part) for part in self._ledger.draw(room)]

    def take(self, order: Order, reply: Reply) -> Update:
        """Mix an answer in; with the last one, go to the next epoch."""
        staleness = self._snapshot.version - reply.version
        epoch, ended, part = self._epoch, False, str(order.part)
        applied = self._is_open(order)
        weight = self.settings.staleness.weigh(staleness)
        if applied and not weight:
            applied = False
            self._ledger.lose(part)
            self._tries[part] = self._tries.get(part, 0) + 1
        elif applied:
            self._mix(order, reply, weight)
            ended = self._close(part)
        return Update(
            key=order.key,
            version=self._snapshot.version,
            applied=applied,
            loss=reply.loss_sum / reply.samples,
            samples=reply.samples,
            staleness=staleness,
            epoch=min(epoch, self.settings.epochs - 1),
            epoch_ended=ended,
        )

    def lose(self, order: Order) -> None:
        """Give the part out again, from newer parameters."""
        if self._is_open(order):
            self._ledger.lose(str(order.part))

    def save(self) -> State:
        """Return both versions that orders start from, and the epoch's progress."""
        here = save_snapshot(self._snapshot)
        base = save_snapshot(self._base, "base")
        plain: dict[str, Plain] = {
            **here.plain,
            **base.plain,
            "epoch": self._epoch,
            "tries": dict(self._tries),
            "ledger": self._ledger.save(),
        }
        return State({**here.tensors, **base.tensors}, plain)

    def load(self, state: State) -> None:
        """Go on from a saved state."""
        tries = read_table(state.plain, "tries")
        self._base = load_snapshot(state, self._snapshot, "base")
        self._snapshot = load_snapshot(state, self._snapshot)
        self._epoch = read_int(state.plain, "epoch")
        self._tries = {part: read_int(tries, part) for part in tries}
        self._ledger = Ledger.load(read_table(state.plain, "ledger"))

    def _open(self) -> Ledger:
        order = shuffle(len(self._parts), self.settings.seed, self._epoch)
        return Ledger(str(part) for part in order.tolist())

    def _key(self, part: int) -> str:
        tries = self._tries.get(str(part), 0)
        again = f"/t{tries}" if tries else ""
        return f"e{self._epoch}/p{part}{again}"

    def _is_open(self, order: Order) -> bool:
        """Return whether the part waits for just this order's answer."""
        out = str(order.part) in self._ledger.outstanding
        return out and order.key == self._key(order.part)

    def _order(self, name: str) -> Order:
        part, local = int(name), self.settings.local
        size, seed = self._parts[part], (self.settings.seed, self._epoch, part)
        return Order(
            self._key(part),
            "local_steps",
            self._snapshot if self.settings.pull == "latest" else self._base,
            part,
            local.count_samples(size),
            local.render(size, derive_seed(*seed), "parameters"),
        )

    def _mix(self, order: Order, reply: Reply, weight: float) -> None:
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
        """Note that a part is done; return whether that ended the epoch."""
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

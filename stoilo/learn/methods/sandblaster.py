"""Sandblaster L-BFGS (Dean et al. 2012): whole-batch passes in small portions.

Each pass gives the loss and the gradient at one point; portions go to whoever is free, so
that a fast host has more of them, and near the end of a pass the oldest that are out go out
once more (the first answer counts). Sums travel: the mean and the regulariser are taken once.
At the shards portions are added in their own order, whoever is first: the bits are the same.

With `planted` no vector passes this process: shards publish the point for volunteers and
fetch the answers, of which only numbers come here (`stoilo.learn.driver.apart`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import Order, Reply, Snapshot
from stoilo.learn.core.states import State
from stoilo.learn.core.tensors import flatten, unflatten
from stoilo.learn.methods.base import (
    Ledger,
    MethodBase,
    Outcome,
    Piece,
    check_parts,
    derive_order_seed,
)
from stoilo.learn.methods.lbfgs import STANDARD, Coordinator, Rules
from stoilo.learn.store.place import ShardPlace
from stoilo.learn.store.remote import RemoteShard
from stoilo.learn.store.server import ParameterServer
from stoilo.learn.store.shards import LocalShard
from stoilo.learn.store.vectors import (
    NORM,
    Forms,
    Planted,
    Vectors,
    count_entries,
    forms_of_arrays,
)


@dataclass(frozen=True, slots=True)
class SandblasterSettings:
    """How to train.

    Attributes:
        portions: of each data part.
        penalty: λ of ``λ/2·|w|²``, added to the mean loss once.
        shards: that vectors are cut into; without meaning when there are `places`.
        backups: share of a pass below which its outstanding portions go out again; 0: never.
        rules: of the optimiser.
        folder: each shard is a process of its own that keeps its vectors below it; None:
            shards are objects in this process.
        places: shards on the network (`stoilo learn shard`), always in this order; in place
            of `folder`.
        space: what those call the vectors: another name for each training.
        planted: what lies at the `places`, put there by `plant`: then this process holds no
            parameters, gradients or answers.
        seed: of what draws in the model; a portion draws the same in every pass, without
            which a line search would compare different functions.
    """

    portions: int = 1
    penalty: float = 0.0
    shards: int = 1
    backups: float = 0.25
    rules: Rules = STANDARD
    seed: int = 0
    folder: Path | None = None
    places: tuple[ShardPlace, ...] = ()
    space: str = "vectors"
    planted: Planted | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot train."""
        if (
            self.portions < 1
            or self.shards < 1
            or not self.penalty >= 0.0
            or not 0.0 <= self.backups <= 1.0
            or (self.planted is not None and not self.places)
        ):
            raise UsageError(
                "STO-T040",
                "these portions, shards, penalty and backups do not describe a training",
                hint="portions and shards ≥ 1, penalty ≥ 0, 0 ≤ backups ≤ 1;"
                " what is planted needs its places",
            )

    def open(self) -> ParameterServer:
        """Return the shards."""
        if self.places:
            return ParameterServer.connect(self.places)
        if self.folder is None:
            names = [f"shard{number}" for number in range(self.shards)]
            return ParameterServer({name: LocalShard() for name in names})
        # A killed trainer's processes end a moment later, and long vectors take their time.
        make = partial(RemoteShard, limit_s=600.0, takeover_s=60.0)
        return ParameterServer.open(self.folder, self.shards, make=make)


class Sandblaster(MethodBase):
    """Passes over the data, driven by a coordinator without parameters."""

    kept = MethodBase.kept | {"_sums": dict[str, float], "_added": int}
    parts = ("_coordinator", "_vectors", "_ledger")

    def __init__(
        self,
        start: Snapshot,
        parts: Sequence[int],
        settings: SandblasterSettings,
    ) -> None:
        super().__init__(start)
        self.settings = settings
        self._samples = sum(check_parts(parts))
        self._pieces = _cut_portions(parts, settings.portions)
        planted = settings.planted
        forms = planted.forms if planted else forms_of_arrays(start.parameters)
        self._coordinator = Coordinator(fit_rules(settings.rules, forms))
        self._sums: dict[str, float] = {}  # losses of each answered portion
        self._added = 0  # portions that are in the sum
        self._server = settings.open()
        try:
            self._vectors = self._server.vectors(count_entries(forms), settings.space)
            self._begin()
        except BaseException:
            self._server.close()
            raise

    @property
    def finished(self) -> bool:
        """Whether the gradient is small, or no further step can be made."""
        return self._coordinator.stopped

    @property
    def value(self) -> float:
        """Loss with regulariser at the accepted point; NaN before the first pass."""
        return self._coordinator.value

    @property
    def iterations(self) -> int:
        """Accepted steps so far."""
        return self._coordinator.iterations

    @property
    def vectors(self) -> Vectors:
        """The vectors at the shards."""
        return self._vectors

    @property
    def coordinator(self) -> Coordinator:
        """The part that decides; it holds no vector."""
        return self._coordinator

    def close(self) -> None:
        """End the shards' processes; without it they end with this one."""
        if self.settings.planted is not None and self.finished:
            self._vectors.save()  # for `harvest`
            self._vectors.keep()
        self._server.close()

    def note_saved(self) -> None:
        """Let the shards keep the vectors that the checkpoint names."""
        self._vectors.keep()

    def load(self, state: State) -> None:
        """Go on; what volunteers see of the point is published again: it may be gone."""
        super().load(state)
        if self.settings.planted is not None:
            self._show(self._snapshot.version)

    def lose(self, order: Order) -> None:
        """Give the portion out again, unless a copy of it is still out."""
        self._ledger.lose(order.key)

    def _draw(self, room: int) -> Sequence[str]:
        keys = self._ledger.draw(room)
        if self.settings.backups:
            keys += self._ledger.draw_backups(room - len(keys), self.settings.backups)
        return keys

    def _count(self, order: Order, reply: Reply, staleness: int) -> Outcome:  # noqa: ARG002 - a pass's are its own
        epoch = self.iterations
        # The other copy of a backup, or a portion of an earlier pass.
        if order.key not in self._ledger.outstanding:
            return Outcome(applied=False, epoch=epoch)
        self._add(order, reply)
        self._ledger.answer(order.key)
        ended = self._ledger.answered == self._ledger.size and self._judge()
        return Outcome(applied=True, epoch=epoch, ended=ended)

    def _begin(self) -> None:
        """Put the first point where it is to be."""
        if self.settings.planted is None:
            for name in ("x", "trial"):
                self._vectors.put(name, flatten(self._snapshot.parameters))
        else:
            self._vectors.begin_newest()
            self._show(self._snapshot.version)
        self._open()

    def _open(self) -> None:
        """Begin a pass at the trial point."""
        place = f"v{self._snapshot.version}"
        self._ledger = Ledger(f"{place}/{name}" for name in self._pieces)
        self._sums, self._added = {}, 0
        self._vectors.zero("slope", "x")

    def _order(self, key: str) -> Order:
        name = key.partition("/")[2]
        # By the portion, not the pass: dropout must be the same function in all trials.
        seed = derive_order_seed(self.settings.seed, name)
        return self._pieces[name].order(key, self._snapshot, seed)

    def _add(self, order: Order, reply: Reply) -> None:
        """Put a portion where it can be added, and add all whose turn it is."""
        name = name_answer(order.key)
        if self.settings.planted is None:
            self._vectors.put(name, flatten(self._in_order(reply)))
        else:
            came, counts = self._vectors.norm(name), float(reply.tensors[NORM][0])
            if counts != came:  # the bound on answers holds for its length
                self._vectors.assign(name, counts / came, name)
        self._sums[order.key] = reply.loss_sum
        for piece in [*self._pieces][self._added :]:
            key = f"v{self._snapshot.version}/{piece}"
            if key not in self._sums:
                break
            self._vectors.axpy("slope", 1.0, name_answer(key))
            self._vectors.drop([name_answer(key)])
            self._added += 1

    def _in_order(self, reply: Reply) -> dict[str, np.ndarray]:
        # Zeros where the reply brings no gradient.
        return {
            name: reply.tensors.get(name, np.zeros_like(array))
            for name, array in self._snapshot.parameters.items()
        }

    def _judge(self) -> bool:
        # Exact, whatever the order of arrival: a line search compares close numbers.
        accepted = self._judge_point(math.fsum(self._sums.values()) / self._samples)
        self._go_to_trial()
        self._open()
        return accepted

    def _judge_point(self, value: float) -> bool:
        vectors, penalty = self._vectors, self.settings.penalty
        vectors.assign("slope", 1.0 / self._samples, "slope")
        vectors.axpy("slope", penalty, "trial")
        value += 0.5 * penalty * vectors.dot("trial", "trial")
        return self._coordinator.judge(vectors, value)

    def _go_to_trial(self) -> None:
        """Make the trial point the newest version, as the volunteers see it: rounded."""
        now = self._snapshot
        if self.settings.planted is not None:
            self._show(now.version + 1)
            return
        point = unflatten(self._vectors.gather("trial"), now.parameters)
        # Rounded as volunteers see it, so that loss and gradient belong to this point.
        self._vectors.put("trial", flatten(point))
        self._snapshot = Snapshot(now.version + 1, point, now.buffers)

    def _show(self, version: int) -> None:
        """Let the shards publish the trial point, rounded as volunteers see it."""
        assert self.settings.planted is not None  # noqa: S101 - who calls has looked
        there = self._vectors.publish("trial", self.settings.planted.forms)
        self._snapshot = replace(self._snapshot, version=version, published=there)


def name_answer(key: str) -> str:
    """Return what the shards call the answer to an order."""
    return f"part/{key.partition('/')[2]}"


def fit_rules(rules: Rules, forms: Forms) -> Rules:
    """Return the rules with the noise of losses that are summed in the parameters' type.

    A noise that was given stays.
    """
    if rules.noise:
        return rules
    # One float32 tensor among doubles makes the whole loss that coarse.
    coarsest = max(float(np.finfo(kind).eps) for kind, _ in forms.values())
    return replace(rules, noise=4.0 * coarsest)


def _cut_portions(parts: Sequence[int], portions: int) -> dict[str, Piece]:
    found: dict[str, Piece] = {}
    for part, size in enumerate(parts):
        if portions == 1:
            found[f"p{part}"] = Piece(part, size)
            continue
        for number, rows in enumerate(np.array_split(np.arange(size), portions)):
            if rows.size:
                piece = Piece(part, int(rows.size), tuple(rows.tolist()))
                found[f"p{part}/n{number}"] = piece
    return found

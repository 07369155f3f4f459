"""Downpour SGD with the optimiser's state at the server (Dean et al. 2012, DistBelief).

A replica is a data part with a cursor, not a machine: whoever is free goes on from where the
part's last order ended. An order is "fetch, so many local steps, push their summed
gradients"; the server applies each push at once, by default with Adagrad, whose sums of
squares never leave it. With one replica and one step an order, this is serial training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stoilo.core.errors import UsageError
from stoilo.learn.methods.plans import (
    APPLY,
    LocalWork,
    Staleness,
    check_parts,
    derive_seed,
    shuffle,
)
from stoilo.learn.methods.states import (
    join,
    load_snapshot,
    pick,
    read_int,
    read_keys,
    read_table,
    save_snapshot,
)
from stoilo.learn.optimizers import Optimizer
from stoilo.learn.tensors import mix
from stoilo.learn.work import Order, Plain, Reply, Snapshot, State, Update

__all__ = ["Downpour", "DownpourSettings"]


@dataclass(frozen=True, slots=True)
class DownpourSettings:
    """How to train.

    Attributes:
        passes: of each replica over its part.
        batch: samples of one local step.
        push: local steps of one order (n_fetch = n_push); what is left of a pass at
            its end goes out as smaller orders, nothing is left out.
        rate: of the local steps; matters from the second step of an order on.
        staleness: what older pushes are worth; a discarded one is not repeated.
        warmup: updates which one replica makes alone before the others begin.
        seed: of the shuffling.
    """

    passes: int
    batch: int
    push: int = 1
    rate: float = 0.01
    staleness: Staleness = APPLY
    warmup: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot train."""
        if min(self.passes, self.batch, self.push) < 1 or self.warmup < 0:
            raise UsageError(
                "STO-T040",
                f"passes {self.passes}, batch {self.batch}, push {self.push} or warmup"
                f" {self.warmup} do not describe a training",
                hint="passes, batch and push ≥ 1, warmup ≥ 0",
            )

    def cut(self, size: int, start: int) -> int:
        """Return where the order ends that begins at `start` in a pass over `size`."""
        full = (size - start) // self.batch
        return start + min(full, self.push) * self.batch if full else size


@dataclass(slots=True)
class _Replica:
    """A data part and how far its training has come.

    Attributes:
        done: complete passes.
        cursor: samples of the present pass that are used up.
        flying: whether an order is out.
    """

    done: int = 0
    cursor: int = 0
    flying: bool = False

    def save(self) -> dict[str, Plain]:
        """Return it as plain data."""
        return {"done": self.done, "cursor": self.cursor, "flying": int(self.flying)}

    @classmethod
    def load(cls, plain: Mapping[str, Plain]) -> _Replica:
        """Return what `save` gave."""
        flying = bool(read_int(plain, "flying"))
        return cls(read_int(plain, "done"), read_int(plain, "cursor"), flying)


class Downpour:
    """Gradients of many replicas, applied as they come."""

    def __init__(
        self,
        start: Snapshot,
        parts: Sequence[int],
        optimizer: Optimizer,
        settings: DownpourSettings,
    ) -> None:
        self.settings = settings
        self.optimizer = optimizer
        self._parts = check_parts(parts)
        self._snapshot = start
        self._replicas = {str(part): _Replica() for part in range(len(parts))}
        self._waiting = list(self._replicas)
        self._updates = 0

    @property
    def snapshot(self) -> Snapshot:
        """The newest version."""
        return self._snapshot

    @property
    def finished(self) -> bool:
        """Whether each replica has made all its passes."""
        return self.epoch >= self.settings.passes

    @property
    def epoch(self) -> int:
        """How many passes the slowest replica has made."""
        return min(replica.done for replica in self._replicas.values())

    @property
    def cursors(self) -> tuple[int, ...]:
        """How many samples of each part have been used, all passes together."""
        sizes = zip(self._replicas.values(), self._parts, strict=True)
        return tuple(replica.done * size + replica.cursor for replica, size in sizes)

    def next_orders(self, room: int) -> Sequence[Order]:
        """Return an order for each replica that has none out, longest waiting first."""
        able = self._waiting
        if self._updates < self.settings.warmup and not self._replicas["0"].done:
            able = [name for name in able if name == "0"]
        drawn = able[: max(room, 0)]
        self._waiting = [name for name in self._waiting if name not in drawn]
        return [self._order(name) for name in drawn]

    def take(self, order: Order, reply: Reply) -> Update:
        """Push a sum of gradients; move the replica's cursor."""
        staleness = self._snapshot.version - reply.version
        replica, before = self._replicas[str(order.part)], self.epoch
        applied = replica.flying and order.key == self._key(str(order.part))
        epoch = replica.done
        if applied:
            weight = self.settings.staleness.weigh(staleness)
            self._go_on(str(order.part))
            applied = bool(weight)
            if applied:
                self._push(reply, weight)
        return Update(
            key=order.key,
            version=self._snapshot.version,
            applied=applied,
            loss=reply.loss_sum / reply.samples,
            samples=reply.samples,
            staleness=staleness,
            epoch=min(epoch, self.settings.passes - 1),
            epoch_ended=self.epoch > before,
        )

    def lose(self, order: Order) -> None:
        """Give the same samples out again, to be trained from newer parameters."""
        name = str(order.part)
        replica = self._replicas[name]
        if replica.flying and order.key == self._key(name):
            replica.flying = False
            self._waiting.append(name)

    def save(self) -> State:
        """Return parameters, the optimiser, and each replica's cursor."""
        here, optimizer = save_snapshot(self._snapshot), self.optimizer.save()
        plain: dict[str, Plain] = {
            **here.plain,
            "updates": self._updates,
            "waiting": [*self._waiting],
            "replicas": {name: r.save() for name, r in self._replicas.items()},
            "optimizer": dict(optimizer.plain),
        }
        return State({**here.tensors, **join(optimizer=optimizer.tensors)}, plain)

    def load(self, state: State) -> None:
        """Go on from a saved state."""
        table = read_table(state.plain, "replicas")
        self._snapshot = load_snapshot(state, self._snapshot)
        self._updates = read_int(state.plain, "updates")
        self._waiting = read_keys(state.plain, "waiting")
        for name in self._replicas:
            self._replicas[name] = _Replica.load(read_table(table, name))
        optimizer = read_table(state.plain, "optimizer")
        self.optimizer.load(State(pick(state.tensors, "optimizer"), optimizer))

    def _key(self, name: str) -> str:
        replica = self._replicas[name]
        return f"r{name}/e{replica.done}/n{replica.cursor}"

    def _order(self, name: str) -> Order:
        part, replica = int(name), self._replicas[name]
        replica.flying = True
        place = (self.settings.seed, replica.done, part)
        end = self.settings.cut(self._parts[part], replica.cursor)
        rows = shuffle(self._parts[part], *place)[replica.cursor : end].tolist()
        batch = min(self.settings.batch, len(rows))
        local = LocalWork(self.settings.rate, batch, len(rows) // batch)
        seed = derive_seed(*place, replica.cursor)
        work = local.render(len(rows), seed, "sum")
        return Order(
            self._key(name),
            "local_steps",
            self._snapshot,
            part,
            len(rows),
            work,
            tuple(rows),
        )

    def _go_on(self, name: str) -> None:
        replica, size = self._replicas[name], self._parts[int(name)]
        replica.flying = False
        replica.cursor = self.settings.cut(size, replica.cursor)
        if replica.cursor == size:
            replica.done, replica.cursor = replica.done + 1, 0
        if replica.done < self.settings.passes:
            self._waiting.append(name)

    def _push(self, reply: Reply, weight: float) -> None:
        """Apply a push; a stale one's *step* is damped, whatever the optimiser scales.

        Buffers follow by the share of one replica.
        """
        now, share = self._snapshot, 1.0 - weight / len(self._parts)
        moved = self.optimizer.step(now.parameters, reply.tensors)
        self._snapshot = Snapshot(
            now.version + 1,
            moved if weight == 1.0 else mix(moved, now.parameters, weight),
            mix(now.buffers, reply.buffers, share),
        )
        self._updates += 1

"""Downpour SGD with the optimiser's state at the server (Dean et al. 2012, DistBelief).

A replica is a data part with a cursor, not a machine: whoever is free goes on from where the
part's last order ended. An order is so many local steps, from the newest parameters or from
the replica's own, and the push of their summed gradients; the server applies each push at
once, by default with Adagrad, whose sums of squares never leave it (`AtShards`: nor the
parameter store). With one replica and one step an order, this is serial training.

As published, but for what loses or repeats steps there: a push has all steps since the last
one, and comes before each fetch. A replica's own weights are where its pushes lead, each as
it was accepted: whoever sends too much moves them no further than the server's.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from stoilo.client.capture.arguments import StoredValue
from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import Order, Published, Reply, Snapshot, Update
from stoilo.learn.core.states import State, Stateful
from stoilo.learn.core.tensors import Array, Tensors, add, mix
from stoilo.learn.methods.base import (
    APPLY,
    LocalWork,
    MethodBase,
    Outcome,
    Staleness,
    check_parts,
    derive_seed,
    shuffle,
)
from stoilo.learn.methods.optimizers import Compensation, Optimizer
from stoilo.learn.store.protocol import Change, Push, ShardOptimizer
from stoilo.learn.store.server import ParameterServer
from stoilo.learn.store.values import BLOCK_BYTES, Layout, Value


@dataclass(frozen=True, slots=True)
class DownpourSettings:
    """How to train.

    Attributes:
        passes: of each replica over its part.
        batch: samples of one local step.
        push: local steps between two pushes (n_push), counted in each pass; what was not
            pushed before a fetch, or the end of a pass, is pushed then.
        fetch: local steps between two fetches of the newest parameters (n_fetch); a pass
            begins with one, and a replica keeps its own weights in between. 0: as `push`.
        split: orders that each batch is divided over, where one volunteer is slow for it: their
            gradients count as one push, summed in a fixed order; `push` is 1 then.
        rate: of the local steps; matters from the second step of an order on.
        staleness: what older pushes are worth; the samples of a discarded one go out
            again, from newer parameters. (Only updates age a push, so that some push
            of those that are out always counts: this ends.)
        warmup: updates which one replica makes alone before the others begin.
        updates: pushes after which the training ends, however far the passes are; 0: none.
        seed: of the shuffling.
        compensation: λ0 of `Compensation` for late pushes; 0: none. The paper's is 2.
    """

    passes: int
    batch: int
    push: int = 1
    rate: float = 0.01
    staleness: Staleness = APPLY
    warmup: int = 0
    seed: int = 0
    updates: int = 0
    compensation: float = 0.0
    split: int = 1
    fetch: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot train."""
        counts = (self.passes, self.batch, self.push, self.split)
        further = (self.warmup, self.updates, self.compensation, self.fetch)
        if min(counts) < 1 or not all(number >= 0 for number in further):
            raise UsageError(
                "STO-T040",
                f"passes, batch, push and split {counts}, warmup, updates,"
                f" compensation and fetch {further} do not describe a training",
                hint="the first four ≥ 1, the others ≥ 0",
            )
        # Steps within an order, and the point that is compensated for, are one order's.
        if self.split > 1 and (self.push > 1 or self.compensation):
            raise UsageError("STO-T040", "a batch is split with push 1, uncompensated")

    def cut(self, size: int, start: int) -> int:
        """Return where the order ends that begins at `start` in a pass over `size`."""
        step, every = start // self.batch, (self.push, self.fetch or self.push)
        return min(size, start + min(n - step % n for n in every) * self.batch)

    def is_fetch(self, start: int) -> bool:
        """Return whether the order that begins at `start` has the newest parameters."""
        return start // self.batch % (self.fetch or self.push) == 0


@dataclass(slots=True)
class _Share:
    """The answer to a part of a batch."""

    version: int
    samples: int
    tensors: dict[str, Array]
    buffers: dict[str, Array]


@dataclass(slots=True)
class _Replica:
    """A data part and how far its training has come."""

    done: int = 0  # complete passes
    cursor: int = 0  # samples of the present pass that are used up
    tries: int = 0  # pushes of the samples at the cursor that were discarded
    flying: list[int] = field(default_factory=list)  # shares of the batch that are out
    # What came of the others
    answers: dict[int, _Share] = field(default_factory=dict)
    # Its weights between fetches, of the version that they are fetched from: its own
    # pushes, which they hold too, are no reason to call them old
    own: Snapshot | None = None

    @property
    def oldest(self) -> int:
        """Return the oldest version that an answer to its batch is of."""
        return min(one.version for one in self.answers.values())


class AtShards(Stateful):
    """An optimiser in the parameter store: a step is a push, its state stays at the shards.

    A push counts once, also when a trainer that was killed makes it again: it carries the
    replica and its number.
    """

    kept = Stateful.kept | {"rate": float, "_run": str, "_pushes": dict[str, int]}

    def __init__(
        self,
        server: ParameterServer,  # whose shards know `optimizer`
        optimizer: ShardOptimizer,  # with `commutes`: replicas are not in step
        like: Tensors,  # the first parameters; what the server has comes before them
        block_bytes: int = BLOCK_BYTES,  # larger tensors are split by rows
        *,
        # Let shards that know the project publish each version: volunteers get it from
        # there, and nothing of it is sent from this process
        publish: bool = False,
    ) -> None:
        self.rate = self._rate = optimizer.make().rate
        self.name = optimizer.name
        self._server, self._layout = server, Layout.of(like, block_bytes)
        self._layout.check_kept(server.list_keys())
        server.create(self._layout.split(like))
        self._run, self._pushes = secrets.token_hex(8), dict[str, int]()
        self._replica, self._weight = "w0", 1.0
        self._publishes = publish
        self.published: Published | None = None  # of what `step` gave last

    def __deepcopy__(self, memo: object) -> Self:
        """Return the same: the shards are not copied."""
        return self

    def name_push(self, replica: str, weight: float) -> None:
        """Say whose push the next step is, and what share of it counts."""
        self._replica, self._weight = replica, weight

    def step(self, parameters: Tensors, gradient: Tensors) -> dict[str, Array]:  # noqa: ARG002 - the shards have newer ones
        """Push a gradient; return what the shards have then."""
        factor = self._weight * (self.rate / self._rate if self._rate else 1.0)
        blocks = self._layout.split(gradient).items()
        changes = [Change(key, self.name, slope, factor) for key, slope in blocks]
        number = self._pushes.get(self._replica, 0)
        self._server.push(Push(f"{self._run}/{self._replica}", number, changes))
        self._pushes[self._replica] = number + 1
        return self._layout.join(self._publish() if self._publishes else self._read())

    def _read(self) -> dict[str, Value]:
        cells = self._server.read(self._layout.keys)
        return {key: cell.value for key, cell in cells.items()}

    def _publish(self) -> dict[str, Value]:
        """Publish what the shards have, and return the very same."""
        while True:  # another trainer may push in between
            blobs = self._server.publish_together(self._layout.keys)
            found = self._read()
            same = [StoredValue.of({k: found[k] for k in keys})[0] for keys in blobs]
            if same == [*blobs.values()]:
                break
        forms = {n: (form.dtype, form.shape) for n, form in self._layout.forms.items()}
        named = tuple((one.digest, one.size) for one in same)
        self.published = Published(named, self._layout.keys, forms)
        return found

    def load(self, state: State) -> None:
        """Go on; raises ``STO-T012`` where the server has forgotten this run's pushes."""
        super().load(state)
        if self._pushes:
            self._server.check_known(self._run, self._layout.keys)


class Downpour(MethodBase):
    """Gradients of many replicas, applied as they come."""

    kept = MethodBase.kept | {
        "_updates": int,
        "_waiting": list[str],
        "_replicas": dict[str, _Replica],
    }
    parts = ("optimizer", "_compensation")

    def __init__(
        self,
        start: Snapshot,
        parts: Sequence[int],
        optimizer: Optimizer,
        settings: DownpourSettings,
    ) -> None:
        super().__init__(start)
        self.settings = settings
        self.optimizer = optimizer
        self._parts = check_parts(parts)
        self._replicas = {str(part): _Replica() for part in range(len(parts))}
        self._waiting: list[str] = []
        for part in range(len(parts)):
            self._give_out(part)
        self._updates = 0
        self._compensation = Compensation(settings.compensation)

    @property
    def finished(self) -> bool:
        """Whether each replica has made all its passes, or enough was pushed."""
        ended = 0 < self.settings.updates <= self._updates
        return ended or self.epoch >= self.settings.passes

    @property
    def epoch(self) -> int:
        """How many passes the slowest replica has made."""
        return min(replica.done for replica in self._replicas.values())

    @property
    def cursors(self) -> tuple[int, ...]:
        """How many samples of each part have been used, all passes together."""
        sizes = zip(self._replicas.values(), self._parts, strict=True)
        return tuple(replica.done * size + replica.cursor for replica, size in sizes)

    def lose(self, order: Order) -> None:
        """Give the same samples out again: from newer parameters, unless from its own."""
        replica, share = self._replicas[str(order.part)], self._share_of(order)
        if self._is_open(order):
            replica.flying.remove(share)
            self._waiting.append(f"{order.part}.{share}")

    def take(self, order: Order, reply: Reply) -> Update:
        """Let an answer count; from a replica's own weights it is as old as they are."""
        own = self._replicas[str(order.part)].own
        if own is not None and self._is_open(order):
            reply = replace(reply, version=own.version)
        return super().take(order, reply)

    def _draw(self, room: int) -> Sequence[str]:
        able = self._waiting
        if self._updates < self.settings.warmup and not self._replicas["0"].done:
            # One replica alone gives Adagrad its first sums, which later ones divide by.
            able = [name for name in able if name.startswith("0.")]
        drawn = able[: max(room, 0)]
        self._waiting = [name for name in self._waiting if name not in drawn]
        return drawn

    def _count(self, order: Order, reply: Reply, staleness: int) -> Outcome:  # noqa: ARG002 - its oldest share's counts
        before, replica = self.epoch, self._replicas[str(order.part)]
        # A late answer after the last pass is counted with that pass.
        epoch = min(replica.done, self.settings.passes - 1)
        if not self._is_open(order):
            return Outcome(applied=False, epoch=epoch)
        share = self._share_of(order)
        replica.flying.remove(share)
        replica.answers[share] = _Share(
            reply.version, reply.samples, dict(reply.tensors), dict(reply.buffers)
        )
        if len(replica.answers) < self._count_shares(order.part):
            return Outcome(applied=True, epoch=epoch)
        weight = self.settings.staleness.weigh(self._snapshot.version - replica.oldest)
        if weight:
            slopes = self._push(order, replica, weight)
            self._go_on(order, slopes)
        else:
            # Part of the key: the same samples again are another task, not the old one.
            replica.tries, replica.own = replica.tries + 1, None
            self._give_out(order.part)
        return Outcome(weight > 0.0, epoch, bool(weight) and self.epoch > before)

    def _cut(self, part: int) -> list[tuple[int, ...]]:
        """Return the rows of the present batch, by its shares."""
        replica, size = self._replicas[str(part)], self._parts[part]
        end = self.settings.cut(size, replica.cursor)
        place = (self.settings.seed, replica.done, part)
        rows = shuffle(size, *place)[replica.cursor : end]
        shares = np.array_split(rows, self._count_shares(part))
        return [tuple(one.tolist()) for one in shares]

    def _count_shares(self, part: int) -> int:
        cursor = self._replicas[str(part)].cursor
        samples = self.settings.cut(self._parts[part], cursor) - cursor
        return min(self.settings.split, samples)

    def _key(self, part: int, share: int) -> str:
        replica = self._replicas[str(part)]
        again = f"/t{replica.tries}" if replica.tries else ""
        split = f"/s{share}" if self.settings.split > 1 else ""
        return f"r{part}/e{replica.done}/n{replica.cursor}{again}{split}"

    def _share_of(self, order: Order) -> int:
        return int(order.key.rpartition("/s")[2]) if self.settings.split > 1 else 0

    def _is_open(self, order: Order) -> bool:
        share = self._share_of(order)
        flying = self._replicas[str(order.part)].flying
        return share in flying and order.key == self._key(order.part, share)

    def _give_out(self, part: int) -> None:
        """Let all shares of the batch at the cursor wait for a volunteer."""
        replica = self._replicas[str(part)]
        replica.flying, replica.answers = [], {}
        shares = range(self._count_shares(part))
        self._waiting += [f"{part}.{share}" for share in shares]

    def _order(self, name: str) -> Order:
        part, share = map(int, name.split("."))
        replica, rows = self._replicas[str(part)], self._cut(part)[share]
        replica.flying.append(share)
        # The last batch of a pass may be smaller.
        batch = min(self.settings.batch, len(rows))
        place = (self.settings.seed, replica.done, part, replica.cursor)
        seed = derive_seed(*place, share) if share else derive_seed(*place)
        work = LocalWork(self.settings.rate, batch).render(len(rows), seed, "sum")
        own = replica.own.parameters if replica.own else {}
        about = (part, len(rows), work, rows, own)
        return Order(self._key(part, share), "local_steps", self._snapshot, *about)

    def _go_on(self, order: Order, slopes: Tensors) -> None:
        """Let the replica go on after a push, from own weights until the next fetch."""
        part, rate = order.part, order.settings["rate"]
        replica, size = self._replicas[str(part)], self._parts[part]
        begun, end = replica.oldest, self.settings.cut(size, replica.cursor)
        replica.tries, replica.answers, replica.own = 0, {}, None
        replica.cursor = end
        if replica.cursor == size:
            replica.done, replica.cursor = replica.done + 1, 0
        elif not self.settings.is_fetch(replica.cursor):
            assert isinstance(rate, int | float)  # noqa: S101 - `LocalWork` wrote it
            base = order.arrays
            moved = add({name: base[name] for name in slopes}, slopes, -rate)
            replica.own = Snapshot(begun + 1, {**base, **moved})
        if replica.done < self.settings.passes:
            self._give_out(part)

    def _push(self, order: Order, replica: _Replica, weight: float) -> Tensors:
        """Apply a push; a stale one's *step* is damped, whatever the optimiser scales.

        Buffers follow by the share of one replica. Return the sum of gradients.
        """
        now, buffers = self._snapshot, self._snapshot.buffers
        # In the order of the shares, not of their arrival: the sum's bits are the same.
        answers = [replica.answers[share] for share in sorted(replica.answers)]
        samples, slopes = sum(one.samples for one in answers), dict[str, Array]()
        moves = weight / len(self._parts) / len(answers)
        for one in answers:
            buffers = mix(buffers, one.buffers, 1.0 - moves)
            for name, mean in one.tensors.items():
                slopes[name] = slopes.get(name, 0.0) + one.samples / samples * mean
        # The whole step is damped, not the gradient: Adagrad would scale that back.
        gradient = self._compensation.correct(slopes, order.arrays, now.parameters)
        if isinstance(self.optimizer, AtShards):
            self.optimizer.name_push(f"w{order.part}", weight)
            weight = 1.0  # the shards damp it
        moved = self._move_by(self.optimizer, gradient)
        moved = moved if weight == 1.0 else mix(moved, now.parameters, weight)
        there = getattr(self.optimizer, "published", None)
        self._snapshot = Snapshot(now.version + 1, moved, buffers, published=there)
        self._updates += 1
        return slopes

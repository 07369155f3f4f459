"""Logistic regression in the four modes of a parameter server, as a training method.

A worker is a part of the data; one iteration of it is one order, handed out when the
vector clock lets it start. To read is to get the snapshot that an order carries; to push
is `take`; the clock is committed there, when the reply is accepted, not when it arrives.

========== ========================== ========================================= =========
mode       an iteration               push                                      kernel
========== ========================== ========================================= =========
dgd        the part at fixed θ        ``-rate · Σ gradient``                    gradient
ipm        one pass of SGD            ``(θ_w - θ) / workers``                   local_steps
downpour   `push` samples of SGD      ``θ_w - θ``                               local_steps
agd        one sample                 ``θ_w - θ``                               local_steps
========== ========================== ========================================= =========

With the limit 0 (BSP), dgd and ipm keep a round's pushes until all are in and add them in
the order of the parts: the result does not depend on who was first. Any model with a sum of
losses does for these modes; the regression's own is `stoilo.learn.kernels.logistic`.

Source: Paracel's logistic regression. What it publishes as downpour takes the difference
since the last *read* at each push, so that two pushes between reads overlap: here each
push is the difference since the snapshot, which is pushed once (see `replica` for many
pushes between reads).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.methods.plans import derive_seed
from stoilo.learn.ps.clock import VectorClock
from stoilo.learn.ps.server import ParameterServer
from stoilo.learn.ps.shards import Change, Push, Shard
from stoilo.learn.tensors import Array
from stoilo.learn.work import Order, Plain, Reply, Snapshot, State, Update

__all__ = ["LogisticRegression", "LogisticSettings", "Mode"]

Mode = Literal["dgd", "ipm", "downpour", "agd"]


@dataclass(frozen=True, slots=True)
class LogisticSettings:
    """How to train.

    Attributes:
        mode: what an iteration is.
        rounds: passes over all data.
        limit: how many iterations a worker may be ahead; 0 is BSP, None is ASP.
        rate: of one sample's step.
        push: samples between two pushes in mode downpour; None for a thousandth of all
            samples, at least 10.
        seed: of the samples' order.
    """

    mode: Mode
    rounds: int = 100
    limit: int | None = 0
    rate: float = 1e-3
    push: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot train."""
        known = self.mode in {"dgd", "ipm", "downpour", "agd"}
        enough = self.rounds >= 1 and (self.push is None or self.push >= 1)
        if not known or not enough or self.rate <= 0.0:
            raise UsageError(
                "STO-T076",
                f"mode {self.mode!r}, {self.rounds} rounds, rate {self.rate} and push "
                f"{self.push} do not describe a training",
            )

    def chunks(self, parts: Sequence[int]) -> int:
        """Return how many iterations make a round."""
        match self.mode:
            case "downpour":
                push = self.push or max(10, sum(parts) // 1000)
                return max(1, min(parts) // push)
            case "agd":
                return min(parts)
        return 1


class LogisticRegression:
    """One worker a part, one parameter server, one clock."""

    def __init__(
        self,
        start: Snapshot,
        parts: Sequence[int],
        settings: LogisticSettings,
        server: ParameterServer | None = None,
    ) -> None:
        """Begin, or (with a server that has files) go on from what it keeps.

        Args:
            start: the first parameters; what `server` keeps already comes before them.
            parts: how many samples each part has, none of them 0.
            settings: how to train.
            server: keeps the parameters; one in memory when None. A push that it has
                seen counts once, even where the state that is loaded is older.
        """
        if not parts or min(parts) < 1:
            raise UsageError("STO-T076", "a part without samples, or no part at all")
        self.settings = settings
        self._parts = tuple(parts)
        self._chunks = settings.chunks(parts)
        self._kept = server is not None
        self._server = server or _in_memory()
        self._server.create(dict(start.parameters))
        self._clock = VectorClock(settings.limit)
        self._clock.join(map(_worker, range(len(parts))))
        self._version = start.version
        self._buffers = start.buffers
        self._names = tuple(start.parameters)
        self._out: set[str] = set()
        self._staged: dict[int, dict[str, Array]] = {}
        self._snapshot = self._read()

    @property
    def clock(self) -> VectorClock:
        """The vector clock: whose part is how far."""
        return self._clock

    @property
    def snapshot(self) -> Snapshot:
        """The newest version."""
        return self._snapshot

    @property
    def finished(self) -> bool:
        """Whether every worker has done all its iterations."""
        return not self._clock.clocks

    def next_orders(self, room: int) -> Sequence[Order]:
        """Return iterations that may start, of the slowest workers first."""
        free = [
            (clock, int(worker[1:]))
            for worker, clock in self._clock.clocks.items()
            if worker not in self._out and self._clock.may_start(worker)
        ]
        chosen = sorted(free)[: max(room, 0)]
        self._out |= {_worker(part) for _, part in chosen}
        return [self._order(part, clock) for clock, part in chosen]

    def take(self, order: Order, reply: Reply) -> Update:
        """Push what came back and commit the iteration, once."""
        worker, iteration = _worker(order.part), _iteration(order)
        stale = self._snapshot.version - reply.version
        round_before = self._clock.time // self._chunks
        applied = self._clock.clocks.get(worker) == iteration
        if applied:
            self._out.discard(worker)
            self._push(order, reply, iteration)
        return Update(
            key=order.key,
            version=self._snapshot.version,
            applied=applied,
            loss=reply.loss_sum / reply.samples,
            samples=reply.samples,
            staleness=stale,
            epoch=iteration // self._chunks,
            epoch_ended=self._clock.time // self._chunks > round_before,
        )

    def lose(self, order: Order) -> None:
        """Let the iteration be handed out again, from newer parameters."""
        if self._clock.clocks.get(_worker(order.part)) == _iteration(order):
            self._out.discard(_worker(order.part))

    def save(self) -> State:
        """Return parameters, clock, and the round's pushes that are kept back."""
        tensors = {f"now:{n}": a for n, a in self._snapshot.parameters.items()}
        for part, change in self._staged.items():
            tensors |= {f"staged:{part}:{name}": a for name, a in change.items()}
        out: list[Plain] = [*sorted(self._out)]
        plain: dict[str, Plain] = {
            "version": self._version,
            "clock": self._clock.save(),
            "out": out,
        }
        return State(tensors, plain)

    def load(self, state: State) -> None:
        """Go on from a saved state; a server with files keeps its own parameters."""
        plain = state.plain
        clock, version, out = plain["clock"], plain["version"], plain["out"]
        if not (
            isinstance(clock, dict)
            and isinstance(version, int)
            and isinstance(out, list)
        ):
            raise UsageError("STO-T065", "the saved training has a wrong form")
        self._clock = VectorClock.restore(clock)
        self._version = version
        self._out = {str(worker) for worker in out}
        self._staged = {}
        for name, array in state.tensors.items():
            kind, _, rest = name.partition(":")
            if kind == "staged":
                part, _, own = rest.partition(":")
                self._staged.setdefault(int(part), {})[own] = array
        if not self._kept:
            self._server = _in_memory()
            self._server.create({n: state.tensors[f"now:{n}"] for n in self._names})
        self._snapshot = self._read()

    def _order(self, part: int, iteration: int) -> Order:
        rows = self._rows(part, iteration)
        samples = self._parts[part] if rows is None else len(rows)
        key = f"{_worker(part)}/i{iteration}"
        if self.settings.mode == "dgd":
            return Order(key, "gradient", self._snapshot, part, samples)
        settings: dict[str, Plain] = {
            "steps": samples,
            "batch": 1,
            "rate": self.settings.rate,
            "momentum": 0.0,
            "optimizer": "sgd",
            "seed": derive_seed(self.settings.seed, part, iteration),
            "give": "parameters",
        }
        return Order(key, "local_steps", self._snapshot, part, samples, settings, rows)

    def _rows(self, part: int, iteration: int) -> tuple[int, ...] | None:
        if self._chunks == 1:
            return None
        done, chunk = divmod(iteration, self._chunks)
        seed = derive_seed(self.settings.seed, done, part)
        shuffler = np.random.Generator(np.random.PCG64(seed))
        order = shuffler.permutation(self._parts[part])
        return tuple(np.array_split(order, self._chunks)[chunk].tolist())

    def _push(self, order: Order, reply: Reply, iteration: int) -> None:
        change = self._change(order, reply)
        if self.settings.limit == 0 and self.settings.mode in {"dgd", "ipm"}:
            self._staged[order.part] = change
        else:
            self._apply({order.part: change}, iteration)
        worker, before = _worker(order.part), self._clock.time
        self._clock.commit(worker, iteration)
        if self._clock.time > before and self._staged:
            self._apply(self._staged, iteration)
            self._staged = {}
        if self._clock.clocks[worker] == self.settings.rounds * self._chunks:
            self._clock.finish(worker)

    def _change(self, order: Order, reply: Reply) -> dict[str, Array]:
        if self.settings.mode == "dgd":
            return {n: -self.settings.rate * a for n, a in reply.tensors.items()}
        share = 1.0 / len(self._parts) if self.settings.mode == "ipm" else 1.0
        base = order.snapshot.parameters
        return {n: share * (a - base[n]) for n, a in reply.tensors.items()}

    def _apply(self, changes: dict[int, dict[str, Array]], iteration: int) -> None:
        """Push changes of one iteration, in the order of the parts."""
        for part, change in sorted(changes.items()):
            entries = [Change(name, "add", array) for name, array in change.items()]
            self._server.push(Push(_worker(part), iteration, entries))
        self._version += 1
        self._snapshot = self._read()

    def _read(self) -> Snapshot:
        cells = self._server.read(self._names)
        parameters = {name: np.asarray(cell.value) for name, cell in cells.items()}
        return Snapshot(self._version, parameters, self._buffers)


def _in_memory() -> ParameterServer:
    return ParameterServer({"memory": Shard()})


def _worker(part: int) -> str:
    return f"w{part}"


def _iteration(order: Order) -> int:
    return int(order.key.rpartition("/i")[2])

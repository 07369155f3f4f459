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
losses does for these modes; the regression's own is `stoilo.learn.kernels.array_models`.

Source: Paracel's logistic regression. What it publishes as downpour takes the difference
since the last *read* at each push, so that two pushes between reads overlap: here each
push is the difference since the snapshot, which is pushed once.

Large tensors lie on the server in blocks of rows (`rows`). Pushes are named by run and
part, so that a server may be kept for a second training, which begins where the first
ended.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import Order, Reply, Snapshot
from stoilo.learn.core.states import Plain, State, Stateful
from stoilo.learn.core.tensors import Array
from stoilo.learn.methods.base import MethodBase, Outcome, derive_seed
from stoilo.learn.store.clock import Attendance, VectorClock
from stoilo.learn.store.protocol import Change, Push
from stoilo.learn.store.server import ParameterServer
from stoilo.learn.store.shards import LocalShard
from stoilo.learn.store.values import BLOCK_BYTES, Layout

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
        lease_s: how long a part's iteration may be out, waiting for a volunteer included,
            before the others go on without it and it is given out again; None to wait for
            the backend's own deadlines.
        block_bytes: larger tensors are split by rows over the server's shards.
    """

    mode: Mode
    rounds: int = 100
    limit: int | None = 0
    rate: float = 1e-3
    push: int | None = None
    seed: int = 0
    lease_s: float | None = None
    block_bytes: int = BLOCK_BYTES

    def __post_init__(self) -> None:
        """Refuse what cannot train."""
        known = self.mode in {"dgd", "ipm", "downpour", "agd"}
        enough = self.rounds >= 1 and (self.push is None or self.push >= 1)
        patient = self.lease_s is None or self.lease_s > 0.0
        positive = self.rate > 0.0 and self.block_bytes >= 1
        if not (known and enough and patient and positive):
            raise UsageError(
                "STO-T040",
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


@functools.lru_cache(maxsize=1024)
def deal(size: int, chunks: int, *place: int) -> tuple[tuple[int, ...], ...]:
    """Return a part's samples in the order of a place, cut into so many iterations."""
    order = np.random.Generator(np.random.PCG64(derive_seed(*place))).permutation(size)
    return tuple(tuple(piece.tolist()) for piece in np.array_split(order, chunks))


class LogisticRegression(MethodBase):
    """One worker a part, one parameter server, one clock."""

    # The parameters only where no server keeps them
    kept = Stateful.kept | {
        "_own": Snapshot | None,
        "_name": str,
        "_version": int,
        "_updates": int,
        "_told": int,
        "_staged": dict[int, dict[str, Array]],
    }
    parts = ("_attendance",)

    def __init__(
        self,
        # The first parameters; what `server` keeps already comes before them
        start: Snapshot,
        parts: Sequence[int],  # how many samples each part has, none of them 0
        settings: LogisticSettings,  # how to train
        # Keeps the parameters; one in memory when None. A push that it has seen
        # counts once, even where the state that is loaded is older.
        server: ParameterServer | None = None,
    ) -> None:
        """Begin, or (with a server that has files) go on from what it keeps."""
        if not parts or min(parts) < 1:
            raise UsageError("STO-T040", "a part without samples, or no part at all")
        self.settings = settings
        self._parts = tuple(parts)
        self._chunks = settings.chunks(parts)
        self._layout = Layout.of(start.parameters, settings.block_bytes)
        self._is_kept = server is not None
        self._own: Snapshot | None = None
        self._server = server or _in_memory()
        self._layout.check_kept(self._server.list_keys())
        # What is there already stays: a kept server goes on where it ended.
        self._server.create(self._layout.split(start.parameters))
        # Pushes carry it: a second training on the same server counts anew.
        self._name = secrets.token_hex(8)
        self._version = self._first = start.version
        self._buffers = start.buffers
        self._staged: dict[int, dict[str, Array]] = {}
        self._told = 0
        self._attendance = self._attend()
        super().__init__(self._read())

    def _attend(self) -> Attendance:
        clock = VectorClock(self.settings.limit, lease_s=self.settings.lease_s)
        clock.join(map(_worker, range(len(self._parts))))
        return Attendance(clock, self.settings.rounds * self._chunks)

    @property
    def clock(self) -> VectorClock:
        """The vector clock: whose part is how far."""
        return self._attendance.clock

    @property
    def missed(self) -> int:
        """How many iterations were left out: their part came back too late for them."""
        return self._attendance.missed

    @property
    def finished(self) -> bool:
        """Whether every iteration of every part is in, or missed."""
        return self._attendance.finished

    def note_time(self, now_s: float) -> None:
        """Note the time: a part whose lease has run out is not waited for any more."""
        before = self.clock.slowest
        self._attendance.note_time(now_s)
        self._end_round(before)

    def next_alarm(self) -> float | None:
        """Return when the next lease runs out; None when none does."""
        return self._attendance.next_alarm()

    def lose(self, order: Order) -> None:
        """Let the iteration be handed out again, from newer parameters."""
        self._attendance.lose(_worker(order.part), _iteration(order))

    def _draw(self, room: int) -> Sequence[str]:
        workers = map(_worker, range(len(self._parts)))
        drawn = self._attendance.draw(room, workers)
        return [f"{worker}/i{iteration}" for worker, iteration in drawn]

    def _count(self, order: Order, reply: Reply, staleness: int) -> Outcome:  # noqa: ARG002 - the clock says who counts
        iteration = _iteration(order)
        applied = self._attendance.answer(_worker(order.part), iteration)
        if applied:
            self._push(order, reply, iteration)
        return Outcome(applied, iteration // self._chunks, ended=self._tell())

    def _tell(self) -> bool:
        """Return whether a round is complete that no update has told of.

        The last one is when all is done: parts may be brought back for it.
        """
        # The last round is told only at the end: parts may come back for it.
        most = self.settings.rounds - (not self.finished)
        done = min(self.clock.time // self._chunks, most)
        told, self._told = self._told, done
        return done > told

    def save(self) -> State:
        """Return the state; a server that was given keeps the parameters itself."""
        if not self._is_kept:
            self._own, self._updates = self._snapshot, 0  # a server of its own, anew
        return super().save()

    def load(self, state: State) -> None:
        """Go on from a saved state; a server that was given keeps its own parameters.

        Where that has pushes which the state does not know of (this process was killed
        between a push and the saving), its parameters are a version of their own.

        Raises:
            UsageError: ``STO-T012`` for a state of another form, or when the server has
                forgotten what this run pushed.
        """
        super().load(state)
        if self._own is not None:
            self._server = _in_memory()
            self._server.create(self._layout.split(self._own.parameters))
        elif self._version > self._first:
            self._server.check_known(self._name, self._layout.keys)
        known = self._updates
        self._snapshot = self._read()
        # Killed between push and saving: what the server has is a version of its own.
        if self._is_kept and self._updates != known:
            self._version += 1
            self._snapshot = replace(self._snapshot, version=self._version)

    def _order(self, key: str) -> Order:
        part, iteration = (int(word[1:]) for word in key.split("/"))
        samples, rows = self._parts[part], None
        if self._chunks > 1:
            done, chunk = divmod(iteration, self._chunks)
            rows = deal(samples, self._chunks, self.settings.seed, done, part)[chunk]
            samples = len(rows)
        seed = derive_seed(self.settings.seed, part, iteration)
        if self.settings.mode == "dgd":
            own: dict[str, Plain] = {"seed": seed}
            return Order(key, "gradient", self._snapshot, part, samples, own)
        settings: dict[str, Plain] = {
            "steps": samples,
            "batch": 1,
            "rate": self.settings.rate,
            "momentum": 0.0,
            "optimizer": "sgd",
            "seed": seed,
            "give": "parameters",
        }
        return Order(key, "local_steps", self._snapshot, part, samples, settings, rows)

    def _push(self, order: Order, reply: Reply, iteration: int) -> None:
        change, before = self._change(order, reply), self.clock.slowest
        if self.settings.limit == 0 and self.settings.mode in {"dgd", "ipm"}:
            self._staged[order.part] = change
        else:
            self._apply({order.part: change}, iteration)
        self._attendance.commit(_worker(order.part), iteration)
        self._end_round(before)

    def _end_round(self, iteration: int) -> None:
        if self.clock.slowest > iteration and self._staged:
            self._apply(self._staged, iteration)
            self._staged = {}

    def _change(self, order: Order, reply: Reply) -> dict[str, Array]:
        if self.settings.mode == "dgd":
            rate = self.settings.rate * self.factor
            return {n: -rate * a for n, a in reply.tensors.items()}
        share = 1.0 / len(self._parts) if self.settings.mode == "ipm" else 1.0
        base = order.snapshot.parameters
        return {n: share * (a - base[n]) for n, a in reply.tensors.items()}

    def _apply(self, changes: dict[int, dict[str, Array]], iteration: int) -> None:
        """Push changes of one iteration, in the order of the parts."""
        # In the order of the parts: the sum has the same bits whoever was first.
        for part, change in sorted(changes.items()):
            blocks = self._layout.split(change)
            entries = [Change(key, "add", array) for key, array in blocks.items()]
            source = f"{self._name}/{_worker(part)}"
            self._server.push(Push(source, iteration, entries))
        self._version += 1
        self._snapshot = self._read()

    def _read(self) -> Snapshot:
        cells = self._server.read(self._layout.keys)
        self._updates = sum(cell.version for cell in cells.values())
        values = {key: cell.value for key, cell in cells.items()}
        return Snapshot(self._version, self._layout.join(values), self._buffers)


def _in_memory() -> ParameterServer:
    return ParameterServer({"memory": LocalShard()})


def _worker(part: int) -> str:
    return f"w{part}"


def _iteration(order: Order) -> int:
    return int(order.key.rpartition("/i")[2])

"""Logistic regression in the four modes of a parameter server, as a training method.

Workers and their clock are those of `stoilo.learn.methods.ssp`; the centre is a parameter
server. To read is to get the snapshot that an order carries; to push is `take`.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import Order, Reply, Snapshot
from stoilo.learn.core.states import Plain, State
from stoilo.learn.core.tensors import scale
from stoilo.learn.methods.base import check_parts, derive_seed
from stoilo.learn.methods.ssp import Clocked, iteration_of
from stoilo.learn.store.clock import VectorClock
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


class LogisticRegression(Clocked):
    """One worker a part, one parameter server, one clock."""

    # The parameters only where no server keeps them
    kept = Clocked.kept | {
        "_own": Snapshot | None,
        "_name": str,
        "_version": int,
        "_updates": int,
    }

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
        chunks = settings.chunks(check_parts(parts))
        self.settings = settings
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
        clock = VectorClock(settings.limit, lease_s=settings.lease_s)
        super().__init__(
            self._read(),
            parts,
            clock,
            rounds=settings.rounds,
            chunks=chunks,
            staged=settings.mode in {"dgd", "ipm"},
        )

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
        part, iteration = iteration_of(key)
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

    def _change(self, order: Order, reply: Reply) -> Reply:
        if self.settings.mode == "dgd":
            rate = self.settings.rate * self.factor
            return replace(reply, tensors=scale(reply.tensors, -rate))
        share = 1.0 / len(self._parts) if self.settings.mode == "ipm" else 1.0
        base = order.snapshot.parameters
        ways = {n: share * (a - base[n]) for n, a in reply.tensors.items()}
        return replace(reply, tensors=ways)

    def _apply(self, changes: Mapping[int, Reply], iteration: int) -> None:
        # In the order of the parts: the sum has the same bits whoever was first.
        for part, change in sorted(changes.items()):
            blocks = self._layout.split(change.tensors)
            entries = [Change(key, "add", array) for key, array in blocks.items()]
            self._server.push(Push(f"{self._name}/w{part}", iteration, entries))
        self._version += 1
        self._snapshot = self._read()

    def _read(self) -> Snapshot:
        cells = self._server.read(self._layout.keys)
        self._updates = sum(cell.version for cell in cells.values())
        values = {key: cell.value for key, cell in cells.items()}
        return Snapshot(self._version, self._layout.join(values), self._buffers)


def _in_memory() -> ParameterServer:
    return ParameterServer({"memory": LocalShard()})

"""How a logistic regression on a parameter server is trained: modes and their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.methods.plans import derive_seed
from stoilo.learn.ps.rows import BLOCK_BYTES

__all__ = ["Dealer", "LogisticSettings", "Mode"]

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


@dataclass(slots=True)
class Dealer:
    """Which samples of a part each iteration of a round takes; drawn once a round.

    Attributes:
        parts: samples of each part.
        chunks: iterations of a round; with one, all samples are taken.
        seed: of the samples' order.
    """

    parts: tuple[int, ...]
    chunks: int
    seed: int
    _rounds: dict[int, tuple[int, list[list[int]]]] = field(default_factory=dict)

    def deal(self, part: int, iteration: int) -> tuple[int, ...] | None:
        """Return the rows of an iteration; None for all of them."""
        if self.chunks == 1:
            return None
        done, chunk = divmod(iteration, self.chunks)
        if self._rounds.get(part, (-1, []))[0] != done:
            self._rounds[part] = done, self._shuffle(part, done)
        return tuple(self._rounds[part][1][chunk])

    def _shuffle(self, part: int, done: int) -> list[list[int]]:
        seed = derive_seed(self.seed, done, part)
        order = np.random.Generator(np.random.PCG64(seed)).permutation(self.parts[part])
        return [piece.tolist() for piece in np.array_split(order, self.chunks)]

"""What is computed of a version that does not move: how good it is, or a layer in shards.

`Evaluating` orders kernel ``evaluate`` over blocks of held-out parts. A layer that is too wide
for one volunteer is computed shard by shard (`Wide`), and a softmax over a split vocabulary
with a few numbers a token and shard (`Vocabulary`; Shoeybi et al. 2019, §3).
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import Order, Reply, Snapshot
from stoilo.learn.core.states import Plain
from stoilo.learn.core.tensors import Array, Form, Tensors
from stoilo.learn.methods.base import Ledger, MethodBase, Outcome, check_parts


class Evaluating(MethodBase):
    """The sums over all samples, each counted once.

    Args:
        start: the version.
        parts: sizes of the held-out parts.
        block: most samples of an order; 0 for whole parts.
    """

    kept = MethodBase.kept | {"_losses": dict[str, float], "_right": dict[str, int]}
    parts = ("_ledger",)

    def __init__(self, start: Snapshot, parts: Sequence[int], block: int = 0) -> None:
        super().__init__(start)
        self._parts = check_parts(parts)
        self.settings = {"block": block}
        self._block = block or max(parts)
        self._losses: dict[str, float] = {}  # of each order, the sum
        self._right: dict[str, int] = {}
        self._ledger = Ledger(
            f"p{part}/s{start}"
            for part, size in enumerate(self._parts)
            for start in range(0, size, self._block)
        )

    @property
    def finished(self) -> bool:
        """Whether every sample has been counted."""
        return self._ledger.answered == self._ledger.size

    @property
    def loss(self) -> float:
        """Mean of the samples' losses; the same bits in whatever order answers came."""
        return math.fsum(self._losses.values()) / sum(self._parts)

    @property
    def accuracy(self) -> float | None:
        """Share of samples that were classified rightly; None where nobody counted."""
        counted = all(right >= 0 for right in self._right.values())
        return sum(self._right.values()) / sum(self._parts) if counted else None

    def lose(self, order: Order) -> None:
        """Order it again."""
        self._ledger.lose(order.key)

    def _draw(self, room: int) -> Sequence[str]:
        return self._ledger.draw(room)

    def _order(self, key: str) -> Order:
        part, start = (int(word[1:]) for word in key.split("/"))
        stop = min(start + self._block, self._parts[part])
        rows = tuple(range(start, stop)) if self._block < self._parts[part] else None
        settings = {"frozen_buffers": True}  # none come back: nothing moves
        return Order(
            key, "evaluate", self._snapshot, part, stop - start, settings, rows
        )

    def _count(self, order: Order, reply: Reply, staleness: int) -> Outcome:  # noqa: ARG002 - there is one version
        if not self._ledger.answer(order.key):
            return Outcome(applied=False, epoch=0)
        self._losses[order.key] = reply.loss_sum
        self._right[order.key] = reply.correct
        return Outcome(applied=True, epoch=0, ended=self.finished)


class Sharded(MethodBase):
    """An answer of every shard to every part of the samples, round by round; nothing moves.

    Args:
        shards: the weights of each, in their order.
        parts: sizes of the parts.
        kernels: one a round.
    """

    kept = MethodBase.kept | {"_answers": dict[str, dict[str, Array]], "_round": int}
    parts = ("_ledger",)

    def __init__(
        self, shards: Sequence[Tensors], parts: Sequence[int], kernels: Sequence[str]
    ) -> None:
        super().__init__(Snapshot(0, {}))
        # What a checkpoint knows the work by; arrays by their digests
        self.settings: dict[str, object] = {"kernels": kernels, "shards": [*shards]}
        self._shards, self._parts = tuple(shards), check_parts(parts)
        self._kernels, self._round = tuple(kernels), 0
        self._answers: dict[str, dict[str, Array]] = {}
        self._ledger = self._open(kernels[0])

    def _open(self, kernel: str) -> Ledger:
        places = range(len(self._parts))
        return Ledger(key for part in places for key in self._keys(kernel, part))

    def _keys(self, kernel: str, part: int) -> list[str]:
        return [f"{kernel}/p{part}/s{shard}" for shard in range(len(self._shards))]

    @property
    def finished(self) -> bool:
        """Whether every shard has answered for every part."""
        is_last = self._round == len(self._kernels) - 1
        return is_last and self._ledger.answered == self._ledger.size

    def _of(self, kernel: str, part: int, name: str) -> list[Array]:
        """Return an array of each shard's answer for a part, in the shards' order."""
        return [self._answers[key][name] for key in self._keys(kernel, part)]

    def _sum(self, kernel: str, name: str) -> Array:
        """Return all samples' sums over the shards: the same bits whoever came first."""
        parts = range(len(self._parts))
        sums: list[Array] = [sum(self._of(kernel, p, name)) for p in parts]  # type: ignore[misc]  # of one at least
        return np.concatenate(sums)

    def lose(self, order: Order) -> None:
        """Order it again."""
        self._ledger.lose(order.key)

    def _draw(self, room: int) -> Sequence[str]:
        return self._ledger.draw(room)

    def _order(self, key: str) -> Order:
        kernel, *places = key.split("/")
        part, shard = (int(place[1:]) for place in places)
        samples = self._parts[part]
        # Each shard is a version of its own.
        order = Order(key, kernel, Snapshot(shard, self._shards[shard]), part, samples)
        return self._complete(order)

    @abstractmethod
    def _complete(self, order: Order) -> Order:
        """Return the order with what its kernel needs besides, and the answer's forms."""

    def _count(self, order: Order, reply: Reply, staleness: int) -> Outcome:  # noqa: ARG002 - nothing moves
        if not self._ledger.answer(order.key):
            return Outcome(applied=False, epoch=0)
        self._answers[order.key] = dict(reply.tensors)
        ended = self.finished
        if self._ledger.answered == self._ledger.size and not ended:
            self._round += 1
            self._ledger = self._open(self._kernels[self._round])
        return Outcome(applied=True, epoch=0, ended=ended)


class Wide(Sharded):
    """A layer's output as the sum of what its shards add; `shape` is one sample's."""

    def __init__(
        self, shards: Sequence[Tensors], parts: Sequence[int], shape: tuple[int, ...]
    ) -> None:
        super().__init__(shards, parts, ["partial"])
        self._shape = shape

    def _complete(self, order: Order) -> Order:
        form = Form("float64", (order.samples, *self._shape))
        return replace(order, forms={"output": form})

    def output(self) -> Array:
        """Return all samples' output."""
        return self._sum("partial", "output")


_ROUNDING = 1e-9


class Vocabulary(Sharded):
    """A softmax's mean loss over a split vocabulary, and its slope at the input.

    In the first round each shard gives three numbers a token (four with smoothing), in the
    second, given the logarithm of the whole sum, its part of the slope.

    Args:
        shards: ``weight`` (words, width) and ``bias`` (words): the words in their order.
        targets: of each part, numbers of words.
        smoothing: of labels, by the whole vocabulary; 0 for none.
        ignored: the target of tokens that do not count.
    """

    def __init__(
        self,
        shards: Sequence[Tensors],
        targets: Sequence[Array],
        smoothing: float = 0.0,
        ignored: int = -100,
    ) -> None:
        words = [len(shard["weight"]) for shard in shards]
        self._starts = [0, *itertools.accumulate(words)]
        if not words or min(words) < 1 or not 0.0 <= smoothing < 1.0:
            raise UsageError(
                "STO-T040",
                f"shards of {words} words, smoothed by {smoothing}, say nothing",
            )
        sizes = [len(one) for one in targets]
        super().__init__(shards, sizes, ["statistics", "slopes"])
        how: dict[str, object] = {"smoothing": smoothing, "ignored": ignored}
        self.settings |= how
        self._smoothing, self._ignored = smoothing, ignored
        self._counted: list[Array] = [np.asarray(one != ignored) for one in targets]
        self._valid = max(1, sum(int(one.sum()) for one in self._counted))

    def _complete(self, order: Order) -> Order:
        settings: dict[str, Plain] = {
            "smoothing": self._smoothing,
            "ignored": self._ignored,
            "vocabulary": self._starts[-1],
            "start": self._starts[order.snapshot.version],
        }
        one = Form("float64", (order.samples,))
        if order.kernel == "statistics":
            names = ["max", "sum", "target", *(["total"] if self._smoothing else [])]
            return replace(order, settings=settings, forms=dict.fromkeys(names, one))
        share: Array = self._counted[order.part] / self._valid
        width = order.snapshot.parameters["weight"].shape[1]
        return replace(
            order,
            settings=settings,
            own={"log": self._logs(order.part), "share": share},
            forms={"input": Form("float64", (order.samples, width))},
        )

    def _count(self, order: Order, reply: Reply, staleness: int) -> Outcome:
        # The largest is one of the summands, and none is larger than it.
        most = len(order.snapshot.parameters["weight"]) * (1.0 + _ROUNDING)
        sums = reply.tensors.get("sum", np.ones(1))
        if sums.min() >= 1.0 and sums.max() <= most:
            return super()._count(order, reply, staleness)
        self.lose(order)
        return Outcome(applied=False, epoch=0)

    def _logs(self, part: int) -> Array:
        """Return the logarithm of each token's sum of ``exp(z)`` over the vocabulary."""
        tops, sums = (self._of("statistics", part, name) for name in ("max", "sum"))
        top: Array = np.max(tops, axis=0)  # without it large logits would overflow
        pairs = zip(tops, sums, strict=True)
        total: Array = np.log(sum(s * np.exp(m - top) for m, s in pairs))
        return top + total

    def loss(self) -> float:
        """Return the mean over the tokens that count, as torch's ``cross_entropy`` does."""
        smoothing, parts = self._smoothing, range(len(self._parts))
        found = np.concatenate([self._logs(part) for part in parts])
        found -= (1.0 - smoothing) * self._sum("statistics", "target")
        if smoothing:
            mean = self._sum("statistics", "total") / self._starts[-1]
            found -= smoothing * mean
        return math.fsum(found[np.concatenate(self._counted)]) / self._valid

    def slope(self) -> Array:
        """Return the loss's slope at the input, (tokens, width)."""
        return self._sum("slopes", "input")

"""What regions and their root say to each other: a version to work at, and sums of it.

Down goes a `Round`, up go whole numbers (`stoilo.learn.traffic.sums`):

    entries of all arrays · sum of losses · of each array, how many answers had it · samples

A sum is made of `Bounded` answers alone, and those of a `Reply`, which is what passed the
checks (`stoilo.learn.driver.acceptance`): there is no way into it for anything else. Nodes are
the project's own; what they bring is bounded all the same before it counts.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from stoilo.core.errors import TrustError, UnreachableError
from stoilo.learn.core.orders import Reply, refuse_answer
from stoilo.learn.core.tensors import Array, Tensors, flatten, safe_norm, unflatten
from stoilo.learn.store.place import read_place
from stoilo.learn.store.values import decode, encode
from stoilo.learn.traffic.holdings import WORD
from stoilo.learn.traffic.owner import collect, give
from stoilo.learn.traffic.sums import ExactSum, Scale

MOST_PARTS = 1 << 20
T = TypeVar("T")
_ROUNDING = 1e-6  # by which a sum may be longer than what it was made of


class Traffic(Protocol):
    """One's own node: it brings versions to all others, and their sums here."""

    def give(self, number: int, data: bytes, ids: Sequence[str] = ()) -> None:
        """Hold bytes: a version, or (with `ids`) what these bring to a round; again is safe.

        Raises:
            UnreachableError: ``STO-T037``.
        """

    def collect(
        self, number: int, ids: Sequence[str], wait_s: float
    ) -> tuple[tuple[str, ...], bytes]:
        """Return the newest version, or (with `ids`) what is there of a round's sum, and whose.

        A version before `number` is none.

        Raises:
            UnreachableError: ``STO-T037``, nothing is there after `wait_s`.
        """


@dataclass(frozen=True, slots=True)
class NodeTraffic:
    """A node that runs beside (`stoilo learn node`), by its connection file.

    The file is read each time: a node that was started again may have another port.
    """

    connection: Path
    training: str = "training"  # its name, where nodes have several: the same at all

    def give(self, number: int, data: bytes, ids: Sequence[str] = ()) -> None:
        """Hold bytes; see `Traffic`."""
        self._do(give, ids, number, data, tuple(ids))

    def collect(
        self, number: int, ids: Sequence[str], wait_s: float
    ) -> tuple[tuple[str, ...], bytes]:
        """Return a version or a sum; see `Traffic`."""
        item, data = self._do(collect, ids, number, ids, wait_s)
        return item.ids, data

    def _do(self, do: Callable[..., T], ids: Sequence[str], *about: object) -> T:
        training = "" if ids else self.training
        try:
            return do(read_place(self.connection), *about, training=training)
        except OSError as error:
            why = f"the own node: {str(error) or type(error).__name__}"
            raise UnreachableError("STO-T037", why) from None


@dataclass(frozen=True, slots=True)
class Round:
    """One version and what is to be done with it; without parts, the training's end."""

    number: int  # of the version and of the sum, as nodes call both
    epoch: int
    step: int
    parameters: dict[str, Array]
    sizes: tuple[int, ...]  # of all data parts, samples
    blocks: tuple[int, ...]  # of each part in a step, samples; 0 for the whole part
    seed: int  # of the shuffling
    in_order: bool  # the samples of a part are used as they lie
    shares: dict[str, tuple[int, ...]]  # region → numbers of the parts that it has
    bound: float  # longest mean gradient of an answer that counts

    @classmethod
    def end(cls, number: int) -> Self:
        """Return what says that no version comes any more."""
        return cls(number, 0, 0, {}, (), (), 0, in_order=False, shares={}, bound=1.0)

    @property
    def terms(self) -> Terms:
        """What the numbers of this round's sums mean."""
        return Terms(self.bound, sum(map(self.count, range(len(self.sizes)))))

    def count(self, part: int) -> int:
        """Return how many samples of a part are used in this step."""
        size, block = self.sizes[part], self.blocks[part]
        return max(0, min(block, size - self.step * block)) if block else size

    def count_of(self, region: str) -> int:
        """Return how many samples a region has in this step; 0 for one that has no share."""
        return sum(map(self.count, self.shares.get(region, ())))

    def render(self) -> bytes:
        """Return it as bytes, the same each time."""
        return encode(self)


def read_round(data: bytes) -> Round:
    """Return the round that bytes of a version are.

    Raises:
        TrustError: ``STO-T011``, they are none.
    """
    found = decode(data, Round)
    parts = [part for share in found.shares.values() for part in share]
    fair = len(found.sizes) == len(found.blocks) <= MOST_PARTS
    fair = fair and sorted(parts) == [*range(len(found.sizes))]
    fair = fair and min((*found.sizes, *found.blocks, found.step, found.seed)) >= 0
    if not fair or not 0.0 < found.bound < math.inf:
        raise TrustError("STO-T011", "a version that says no round of regions")
    return found


@dataclass(frozen=True, slots=True)
class Terms:
    """What the numbers of a round's sums mean."""

    bound: float = 1.0  # longest mean gradient of an answer that counts
    samples: int = 1  # of all regions together

    @property
    def scale(self) -> Scale:
        """The step of the sums, for which all samples at the bound are not too much."""
        return Scale.fit(self.bound * self.samples, 1)


@dataclass(frozen=True, slots=True)
class Bounded:
    """A checked answer in whole numbers: the only thing that a sum is made of."""

    sum: ExactSum
    has: NDArray[np.int64]  # of each array, whether the answer had it

    @classmethod
    def of(cls, reply: Reply, like: Tensors, terms: Terms) -> Self:
        """Return an answer, shortened to the bound where it is longer.

        Args:
            reply: a sum over its samples.
            like: the version's parameters: names, order, shapes.
            terms: of the round.

        Raises:
            UsageError: ``STO-T040``, it holds a number that is not finite after all.
        """
        most, given = terms.bound * reply.samples, reply.tensors
        vector = flatten({n: given.get(n, np.zeros(a.shape)) for n, a in like.items()})
        if most < (size := safe_norm({"": vector})) < math.inf:
            vector = np.clip(vector * (most / size), -most, most)
        whole = np.append(vector, min(max(reply.loss_sum, -most), most))
        has = np.array([name in given for name in like], np.int64)
        return cls(ExactSum.encode(whole, reply.samples, terms.scale), has)


def add_up(answers: Iterable[Bounded]) -> NDArray[np.int64]:
    """Return what a region brings to a round."""
    kept = [*answers]
    total = functools.reduce(operator.add, (one.sum for one in kept))
    has = np.sum([one.has for one in kept], axis=0, dtype=np.int64)
    return np.concatenate([total.values, has, [total.samples]]).astype(WORD)


def read_sum(
    data: bytes, like: Tensors, terms: Terms, version: int, most: int
) -> Mapping[str, object]:
    """Return the answer, as a kernel's, that a collected sum is; `most`: samples in it.

    Raises:
        TrustError: ``STO-T010``, no sum of checked answers is like that.
    """
    entries = sum(array.size for array in like.values())
    if len(data) != WORD.itemsize * (entries + len(like) + 2):
        raise refuse_answer("a regions' sum is of another length")
    words = np.frombuffer(data, WORD).astype(np.int64)
    values, has, samples = words[: entries + 1], words[entries + 1 : -1], int(words[-1])
    numbers = ExactSum(values, samples).decode(terms.scale)
    longest = terms.bound * samples * (1.0 + _ROUNDING)
    if not 0 < samples <= most or safe_norm({"": numbers[:-1]}) > longest:
        raise refuse_answer("a regions' sum is beyond what checked answers give")
    wide = unflatten(numbers, {name: np.zeros(a.shape) for name, a in like.items()})
    return {
        "version": version,
        "samples": samples,
        "loss_sum": float(numbers[-1]),
        "tensors": {n: a for (n, a), k in zip(wide.items(), has, strict=True) if k},
        "buffers": {},
        "correct": -1,
    }

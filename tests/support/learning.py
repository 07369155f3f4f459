"""A bench for training methods: small numpy problems, and volunteers on a virtual clock.

No driver, no jail: `answer` computes what a volunteer would, and two loops drive a method
with it. The digits come with scikit-learn, so nothing is downloaded.
"""

from __future__ import annotations

import functools
import heapq
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stoilo.learn.core.orders import (
    Method,
    Order,
    Reply,
    Snapshot,
    Update,
)
from stoilo.learn.core.tensors import Array, Tensors, add
from stoilo.learn.methods.optimizers import Adam, Optimizer, Sgd

__all__ = [
    "Answer",
    "Digits",
    "Event",
    "Fleet",
    "Net",
    "Volunteers",
    "load_digits",
    "make_overlapping",
    "run_replicas",
    "run_serially",
    "split_evenly",
]

Answer: TypeAlias = Callable[[Order], Reply]
"""What a volunteer does with an order."""
Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Digits:
    """Handwritten digits: images (samples, 64) in 0…1, labels 0…9."""

    images: Floats
    labels: NDArray[np.int64]
    test_images: Floats
    test_labels: NDArray[np.int64]


@functools.cache
def load_digits(train: int = 1400, seed: int = 0) -> Digits:
    """Return scikit-learn's 1,797 digits, shuffled, `train` of them to train with."""
    from sklearn.datasets import load_digits as load  # noqa: PLC0415 - takes a second

    images, labels = load(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    images, labels = images[order] / 16.0, labels[order].astype(np.int64)
    return Digits(images[:train], labels[:train], images[train:], labels[train:])


@functools.cache
def make_overlapping(train: int = 1400, seed: int = 0) -> Digits:
    """Return ten noisy classes that overlap, in the form of the digits.

    Each class is two clouds of 64 numbers around centres of its own; one label in ten of
    those to train with is drawn at random.
    """
    rng = np.random.default_rng(seed)
    labels = rng.integers(10, size=train + 2000)
    centres = 0.6 * rng.standard_normal((2, 10, 64))
    noise = rng.standard_normal((len(labels), 64))
    images = centres[rng.integers(2, size=len(labels)), labels] + noise
    wrong = rng.random(train) < 0.1
    known = np.where(wrong, rng.integers(10, size=train), labels[:train])
    return Digits(images[:train], known, images[train:], labels[train:])


def split_evenly(size: int, parts: int) -> list[NDArray[np.int64]]:
    """Return the indices of so many contiguous parts, sizes differing by one at most."""
    return np.array_split(np.arange(size), parts)


@dataclass(frozen=True, slots=True)
class Net:
    """A fully connected net with a softmax loss, in double precision.

    Attributes:
        sizes: of its layers, input first: (64, 10) is softmax regression.
        rectified: hidden layers are ReLU; tanh otherwise.
    """

    sizes: tuple[int, ...] = (64, 10)
    rectified: bool = False

    def start(self, seed: int = 0, spread: float | None = None) -> dict[str, Floats]:
        """Return first parameters: normal of width `spread`, else by the fan-in."""
        rng = np.random.default_rng(seed)
        found: dict[str, Floats] = {}
        for layer, (width, after) in enumerate(itertools.pairwise(self.sizes)):
            gain = 2.0 if self.rectified else 1.0
            scale = np.sqrt(gain / width) if spread is None else spread
            found[f"w{layer}"] = scale * rng.standard_normal((width, after))
            found[f"b{layer}"] = np.zeros(after)
        return found

    def _forward(self, w: Tensors, images: Floats) -> list[Floats]:
        layers = [images]
        last = len(self.sizes) - 2
        for layer in range(last + 1):
            z = layers[-1] @ w[f"w{layer}"] + w[f"b{layer}"]
            if layer < last:
                z = np.maximum(z, 0.0) if self.rectified else np.tanh(z)
            layers.append(z)
        return layers

    def differentiate(
        self, w: Tensors, images: Floats, labels: NDArray[np.int64]
    ) -> tuple[float, dict[str, Array], int]:
        """Return sum of losses, sum of gradients, and how many were right."""
        layers = self._forward(w, images)
        scores = layers[-1] - layers[-1].max(axis=1, keepdims=True)
        odds = np.exp(scores)
        total = odds.sum(axis=1, keepdims=True)
        rows = np.arange(len(labels))
        loss = float(np.sum(np.log(total[:, 0]) - scores[rows, labels]))
        slope = odds / total
        slope[rows, labels] -= 1.0
        found: dict[str, Array] = {}
        for layer in reversed(range(len(self.sizes) - 1)):
            found[f"w{layer}"] = layers[layer].T @ slope
            found[f"b{layer}"] = slope.sum(axis=0)
            if layer:
                bend = layers[layer] > 0 if self.rectified else 1.0 - layers[layer] ** 2
                slope = (slope @ w[f"w{layer}"].T) * bend
        right = int(np.sum(scores.argmax(axis=1) == labels))
        return loss, {name: found[name] for name in w}, right

    def score(self, w: Tensors, images: Floats, labels: NDArray[np.int64]) -> float:
        """Return the share that is classified rightly."""
        return float(np.mean(self._forward(w, images)[-1].argmax(axis=1) == labels))


@dataclass(frozen=True, slots=True)
class Volunteers:
    """Honest volunteers: the kernels of `stoilo.learn.kernels` in numpy.

    Attributes:
        net: the model.
        images: all samples (n, width).
        labels: theirs.
        parts: indices of each part's samples.
    """

    net: Net
    images: Floats
    labels: NDArray[np.int64]
    parts: Sequence[NDArray[np.int64]]

    @property
    def sizes(self) -> list[int]:
        """Samples of each part."""
        return [len(part) for part in self.parts]

    def start(self, seed: int = 0) -> Snapshot:
        """Return the model's first version."""
        return Snapshot(0, self.net.start(seed))

    def answer(self, order: Order) -> Reply:
        """Do what the order says."""
        rows = self.parts[order.part]
        if order.rows is not None:
            rows = rows[list(order.rows)]
        if order.kernel == "gradient":
            return self._gradient(order, rows)
        return self._local_steps(order, rows)

    def _gradient(self, order: Order, rows: NDArray[np.int64]) -> Reply:
        w = order.arrays
        loss, slope, right = self.net.differentiate(
            w, self.images[rows], self.labels[rows]
        )
        return Reply(order.snapshot.version, len(rows), loss, slope, correct=right)

    def _local_steps(self, order: Order, rows: NDArray[np.int64]) -> Reply:
        plain: Mapping[str, Any] = order.settings
        optimizer = make_local(plain)
        w = order.arrays
        given = {name: np.zeros_like(array) for name, array in w.items()}
        samples, losses, correct = 0, 0.0, 0
        batches = deal(rows, int(plain["batch"]), int(plain["seed"]))
        for batch in itertools.islice(batches, int(plain["steps"])):
            loss, total, right = self.net.differentiate(
                w, self.images[batch], self.labels[batch]
            )
            mean = {name: array / len(batch) for name, array in total.items()}
            w, given = optimizer.step(w, mean), add(given, mean)
            samples, losses, correct = (
                samples + len(batch),
                losses + loss,
                correct + right,
            )
        tensors = w if plain["give"] == "parameters" else given
        return Reply(order.snapshot.version, samples, losses, tensors, correct=correct)


def make_local(plain: Mapping[str, Any]) -> Optimizer:
    """Return the volunteer's own optimiser."""
    if plain["optimizer"] == "adamw":
        return Adam(plain["rate"], decay=0.01, decoupled=True)
    return Sgd(plain["rate"], momentum=plain["momentum"])


def deal(rows: NDArray[np.int64], batch: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Yield batches without end: a new permutation when one is used up."""
    rng = np.random.Generator(np.random.PCG64(seed))
    width = batch or len(rows)
    while True:
        order = rows[rng.permutation(len(rows))]
        for start in range(0, len(rows), width):
            yield order[start : start + width]


@dataclass(frozen=True, slots=True)
class Event:
    """One answer that was taken, or (update None) one that was lost."""

    time: float
    host: int
    order: Order
    update: Update | None


def run_serially(
    method: Method, answer: Answer, limit: int = 100_000, room: int = 1
) -> list[Update]:
    """Drive a method to its end, each order answered at once; return what was done."""
    updates: list[Update] = []
    while not method.finished and len(updates) < limit:
        orders = method.next_orders(room)
        if not orders:
            raise AssertionError("the method waits for what it never ordered")
        updates += [method.take(order, answer(order)) for order in orders]
    return updates


@dataclass(frozen=True, slots=True)
class Fleet:
    """Volunteers' speeds and fates on the virtual clock.

    Attributes:
        times: virtual seconds that each host takes for an order.
        jitter: share by which a single time varies, either way.
        lost: share of orders that end in nothing.
        deaths: host → virtual time from which it answers nothing any more.
        deadline: virtual seconds after which a silent order counts as lost.
        seed: of jitter and losses.
    """

    times: Sequence[float]
    jitter: float = 0.0
    lost: float = 0.0
    deaths: Mapping[int, float] = field(default_factory=dict)
    deadline: float = 10.0
    seed: int = 0


def run_replicas(
    method: Method,
    answer: Answer,
    fleet: Fleet,
    until: Callable[[Event], bool] = lambda _: False,
) -> list[Event]:
    """Drive a method by hosts that work side by side; return what happened, in order.

    An order whose key was answered already is dropped on arrival, as the driver does.
    """
    bench = _Bench(method, answer, fleet)
    for event in bench.run():
        if until(event):
            break
    return bench.events


class _Bench:
    """The queue of arrivals."""

    def __init__(self, method: Method, answer: Answer, fleet: Fleet) -> None:
        self.method, self.answer, self.fleet = method, answer, fleet
        self.events: list[Event] = []
        self._rng = np.random.default_rng(fleet.seed)
        self._idle = list(range(len(fleet.times)))
        self._arrivals: list[tuple[float, int, int, Order, bool]] = []
        self._answered: set[str] = set()
        self._number = itertools.count()

    def run(self) -> Iterator[Event]:
        now = 0.0
        while not self.method.finished:
            self._dispatch(now)
            if not self._arrivals:
                raise AssertionError("no host works and the method is not finished")
            now, _, host, order, good = heapq.heappop(self._arrivals)
            if self.fleet.deaths.get(host, np.inf) > now:
                self._idle.append(host)
            if order.key in self._answered:
                continue
            self.events.append(self._settle(now, host, order, good=good))
            yield self.events[-1]

    def _dispatch(self, now: float) -> None:
        alive = [h for h in self._idle if self.fleet.deaths.get(h, np.inf) > now]
        orders = self.method.next_orders(len(alive))
        self._idle = alive[len(orders) :]
        for host, order in zip(alive, orders, strict=False):
            spread = self.fleet.jitter * self._rng.uniform(-1.0, 1.0)
            end = now + self.fleet.times[host] * (1.0 + spread)
            good = self._rng.random() >= self.fleet.lost
            good = good and self.fleet.deaths.get(host, np.inf) > end
            when = end if good else now + self.fleet.deadline
            entry = (when, next(self._number), host, order, good)
            heapq.heappush(self._arrivals, entry)

    def _settle(self, now: float, host: int, order: Order, *, good: bool) -> Event:
        if not good:
            self.method.lose(order)
            return Event(now, host, order, None)
        self._answered.add(order.key)
        return Event(now, host, order, self.method.take(order, self.answer(order)))

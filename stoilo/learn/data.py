"""Training data in parts: arrays of samples, sent once to a host whatever names them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from stoilo.core.errors import UsageError
from stoilo.learn.tensors import Array

__all__ = [
    "Part",
    "Transform",
    "chain",
    "collect",
    "read_lines",
    "split",
    "split_by_label",
]

Transform = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Part:
    """Some samples.

    Attributes:
        x: inputs, samples first.
        y: targets, as many.
    """

    x: Array
    y: Array

    def __post_init__(self) -> None:
        """Refuse an empty part and unequal lengths."""
        if not len(self.x) or len(self.x) != len(self.y):
            raise UsageError(
                "STO-T004",
                f"a part has {len(self.x)} inputs and {len(self.y)} targets",
                hint="as many targets as inputs, at least one",
            )

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.x)


def split(x: ArrayLike, y: ArrayLike, parts: int, *, seed: int = 0) -> list[Part]:
    """Return `parts` random parts, disjoint, sizes equal but for one sample.

    Raises:
        UsageError: ``STO-T004`` with fewer samples than parts.
    """
    inputs, targets = np.asarray(x), np.asarray(y)
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(inputs))
    return _cut(inputs, targets, np.array_split(order, parts))


def split_by_label(
    x: ArrayLike, y: ArrayLike, parts: int, *, disorder: float = 0.0, seed: int = 0
) -> list[Part]:
    """Return parts that differ in their labels: samples in the order of labels, dealt out.

    Args:
        x: inputs.
        y: labels, whole numbers.
        parts: how many.
        disorder: share of the samples that are put at random places first.
        seed: of those.
    """
    inputs, targets = np.asarray(x), np.asarray(y)
    order = np.argsort(targets, kind="stable")
    shuffler = np.random.Generator(np.random.PCG64(seed))
    moved = shuffler.choice(len(order), int(disorder * len(order)), replace=False)
    order[np.sort(moved)] = order[moved]
    return _cut(inputs, targets, np.array_split(order, parts))


def _cut(x: Array, y: Array, pieces: Sequence[Array]) -> list[Part]:
    return [Part(x[rows], y[rows]) for rows in pieces]


def chain(*transforms: Transform) -> Transform:
    """Return one transform that applies all, first to last."""

    def apply(value: Any) -> Any:  # noqa: ANN401 - whatever samples are
        for transform in transforms:
            value = transform(value)
        return value

    return apply


def collect(
    samples: Iterable[tuple[Any, Any]], transform: Transform | None = None
) -> tuple[Array, Array]:
    """Return the arrays of (input, target) pairs, for example of a torch dataset."""
    pairs = [(transform(x) if transform else x, y) for x, y in samples]
    if not pairs:
        raise UsageError("STO-T004", "there are no samples", hint="at least one")
    return (
        np.stack([np.asarray(x) for x, _ in pairs]),
        np.stack([np.asarray(y) for _, y in pairs]),
    )


def read_lines(
    path: Path, parse: Callable[[str], tuple[Any, Any]], parts: int
) -> list[Part]:
    """Return a file's lines in `parts` runs of lines, each line parsed to (input, target)."""
    with path.open(encoding="utf-8") as lines:
        x, y = collect(parse(line.rstrip("\n")) for line in lines if line.strip())
    return _cut(x, y, np.array_split(np.arange(len(x)), parts))

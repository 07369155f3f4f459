"""Parts that are unlike each other, as the data of real participants is (non-IID).

By label: each part has few classes (McMahan et al. 2017, section 3), or all of them in
shares of its own (Hsu, Qi, Brown 2019: Dirichlet).
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import ArrayLike

from stoilo.core.errors import UsageError
from stoilo.learn.core.parts import Part, Samples, as_samples, make_shuffler
from stoilo.learn.core.tensors import Array


DRAWS = 1000  # how often a Dirichlet split is drawn until no part is too small


def split_by_label(
    x: ArrayLike | Samples,
    y: ArrayLike,
    parts: int,
    *,
    disorder: float = 0.0,
    seed: int = 0,
) -> list[Part]:
    """Return parts that differ in their labels: samples in the order of labels, dealt out.

    Args:
        x: inputs.
        y: labels, whole numbers.
        parts: how many.
        disorder: share of the samples that are put at random places first.
        seed: of those.
    """
    whole = Part(as_samples(x), _labels(y))
    # Stable: the same parts on every machine.
    order = np.argsort(_labels(y), kind="stable")
    shuffler = make_shuffler(seed)
    moved = shuffler.choice(len(order), int(disorder * len(order)), replace=False)
    order[np.sort(moved)] = order[moved]
    return [whole.take(rows) for rows in _cut(order, parts)]


def split_by_classes(
    x: ArrayLike | Samples,
    y: ArrayLike,
    parts: int,
    *,
    classes: int = 2,
    seed: int = 0,
) -> list[Part]:
    """Return parts of about so many classes each: runs of one label, dealt at random.

    Samples in the order of labels are cut into ``parts * classes`` runs, and each part
    gets `classes` of them (McMahan et al. 2017, section 3).
    """
    whole, shuffler = Part(as_samples(x), _labels(y)), make_shuffler(seed)
    order = shuffler.permutation(len(whole))
    order = order[np.argsort(_labels(y)[order], kind="stable")]
    runs = _cut(order, parts * classes)
    turn = shuffler.permutation(len(runs)).reshape(parts, classes)
    return [whole.take(np.concatenate([runs[run] for run in mine])) for mine in turn]


def split_by_dirichlet(
    x: ArrayLike | Samples,
    y: ArrayLike,
    parts: int,
    *,
    alpha: float = 0.5,
    least: int = 1,
    seed: int = 0,
) -> list[Part]:
    """Return parts with shares of each class drawn from a Dirichlet distribution.

    Args:
        x: inputs.
        y: labels, whole numbers.
        parts: how many.
        alpha: concentration: 100 is nearly IID, 0.1 nearly one part a class.
        least: samples of the smallest part.
        seed: of the shares and of the order within classes.

    Raises:
        UsageError: ``STO-T033`` when alpha is not positive or parts stay too small.
    """
    if not alpha > 0.0:
        raise UsageError("STO-T033", f"alpha {alpha} is no concentration", hint="> 0")
    whole, labels, shuffler = (
        Part(as_samples(x), _labels(y)),
        _labels(y),
        make_shuffler(seed),
    )
    # A small alpha often leaves a part empty: draw again, from the same stream.
    for _ in range(DRAWS):
        found = _deal(labels, parts, alpha, shuffler)
        if min(map(len, found)) >= max(1, least):
            return [whole.take(rows) for rows in found]
    raise UsageError(
        "STO-T033",
        f"{parts} parts of at least {least} samples did not come of alpha {alpha}",
        hint="fewer parts, a smaller least, or a larger alpha",
    )


def _deal(
    labels: Array, parts: int, alpha: float, shuffler: np.random.Generator
) -> list[Array]:
    """Return the rows of each part, once, in random order."""
    pieces: list[list[Array]] = [[] for _ in range(parts)]
    for label in np.unique(labels):
        rows = shuffler.permutation(np.flatnonzero(labels == label))
        shares = shuffler.dirichlet(np.full(parts, alpha))
        ends = np.round(np.cumsum(shares) * len(rows)).astype(int)
        bounds = itertools.pairwise([0, *ends[:-1].tolist(), len(rows)])
        for mine, (start, end) in zip(pieces, bounds, strict=True):
            mine.append(rows[start:end])
    return [shuffler.permutation(np.concatenate(mine)) for mine in pieces]


def _labels(y: ArrayLike) -> Array:
    labels = as_samples(y, "the labels")
    if isinstance(labels, tuple) or labels.ndim != 1 or labels.dtype.kind not in "iub":
        raise UsageError(
            "STO-T033", "samples are split by labels, and these are none",
            hint="one whole number a sample",
        )  # fmt: skip
    return labels


def _cut(order: Array, parts: int) -> list[Array]:
    if len(order) < parts:
        raise UsageError(
            "STO-T033",
            f"{len(order)} samples do not fill {parts} parts",
            hint="ask for fewer parts",
        )
    return np.array_split(order, parts)

"""Training data in parts: arrays of samples, sent once to a host whatever names them.

Parts that are unlike each other come from `splits`, files of lines from `text_files`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from stoilo.core.errors import UsageError
from stoilo.learn.core.tensors import Array

Transform = Callable[[Any], Any]
# Samples first; a tuple where each sample is several things (a model of two inputs).
Samples: TypeAlias = "Array | tuple[Array, ...]"


@dataclass(frozen=True, slots=True)
class Part:
    """Some samples.

    Attributes:
        x: inputs, samples first; a tuple of arrays is several arguments of the model.
        y: targets, as many.
    """

    x: Samples
    y: Samples

    def __post_init__(self) -> None:
        """Refuse an empty part, unequal lengths, and what is no array of numbers."""
        lengths = {len(a) for s in (self.x, self.y) for a in _arrays_of(s)}
        if len(lengths) != 1 or not min(lengths):
            raise UsageError(
                "STO-T004",
                f"a part has {_lengths(self.x)} inputs and {_lengths(self.y)} targets",
                hint="as many targets as inputs, at least one",
            )

    def __len__(self) -> int:
        """Return the number of samples."""
        return count_samples(self.y)

    @property
    def nbytes(self) -> int:
        """Size of all arrays, bytes."""
        return sum(a.nbytes for s in (self.x, self.y) for a in _arrays_of(s))

    def take(self, rows: Sequence[int] | slice | Array) -> Part:
        """Return the part of these samples."""
        return Part(take(self.x, rows), take(self.y, rows))


def _arrays_of(samples: Samples) -> tuple[Array, ...]:
    return samples if isinstance(samples, tuple) else (samples,)


def _lengths(samples: Samples) -> str:
    return " and ".join(str(len(array)) for array in _arrays_of(samples)) or "no"


def count_samples(samples: Samples) -> int:
    """Return how many samples there are."""
    return len(_arrays_of(samples)[0])


def take(samples: Samples, rows: Sequence[int] | slice | Array) -> Samples:
    """Return the samples of these rows; of each array, where there are several."""
    if isinstance(samples, tuple):
        return tuple(array[rows] for array in samples)
    found: Array = samples[rows]
    return found


def as_samples(value: Any, what: str = "the inputs") -> Samples:  # noqa: ANN401 - whatever is given
    """Return arrays: one, or of a tuple of sequences each.

    Raises:
        UsageError: ``STO-T004`` for anything that is no array of numbers.
    """
    if isinstance(value, tuple) and value and all(_is_sequence(one) for one in value):
        return tuple(_as_array(one, f"{what} [{i}]") for i, one in enumerate(value))
    return _as_array(value, what)


def as_batch(value: Any, what: str = "the inputs") -> Samples:  # noqa: ANN401 - a loader's own
    """Return arrays of a loader's batch: loaders make lists of the tuples of samples."""
    if isinstance(value, list) and all(hasattr(one, "shape") for one in value):
        return as_samples(tuple(value), what)
    return as_samples(value, what)


def _is_sequence(value: object) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, (str, bytes))


def _as_array(value: Any, what: str) -> Array:  # noqa: ANN401 - whatever is given
    if isinstance(value, (dict, set)):
        raise _no_array(what, f"they are a {type(value).__name__}")
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise _no_array(what, str(error)[:200]) from None
    # Objects and texts would be refused by the codec later, with less to say.
    if array.dtype.kind not in "biufc":
        raise _no_array(what, f"numpy makes {array.dtype} of them")
    return array


def _no_array(what: str, why: str) -> UsageError:
    return UsageError(
        "STO-T004",
        f"{what} are no array of numbers: {why}",
        hint="one array, samples first, all of one shape; a tuple for several inputs",
    )


def make_shuffler(seed: int) -> np.random.Generator:
    """Return a generator that draws the same on every computer.

    Raises:
        UsageError: ``STO-T040`` for a negative seed.
    """
    if seed < 0:
        raise UsageError("STO-T040", f"the seed {seed} is negative", hint="0 or more")
    # Named, not numpy's default, which may change between its versions.
    return np.random.Generator(np.random.PCG64(seed))


def split(
    x: ArrayLike | Samples, y: ArrayLike | Samples, parts: int, *, seed: int = 0
) -> list[Part]:
    """Return `parts` random parts, disjoint, sizes equal but for one sample.

    Raises:
        UsageError: ``STO-T004`` with fewer samples than parts.
    """
    whole = Part(as_samples(x), as_samples(y, "the targets"))
    order = make_shuffler(seed).permutation(len(whole))
    return [whole.take(rows) for rows in np.array_split(order, parts)]


def chain(*transforms: Transform) -> Transform:
    """Return one transform that applies all, first to last."""

    def apply(value: Any) -> Any:  # noqa: ANN401 - whatever samples are
        for transform in transforms:
            value = transform(value)
        return value

    return apply


def scale_pixels(image: ArrayLike) -> Array:
    """Return an image of bytes, 0 to 255, as float32 from 0 to 1; a transform for `collect`.

    Raises:
        UsageError: ``STO-T004`` for what is no bytes: scaled before, or of more bits.
    """
    array = np.asarray(image)
    if array.dtype != np.uint8:
        raise _no_array("pixels", f"they are {array.dtype}, not uint8")
    return array.astype(np.float32) / np.float32(255.0)


def collect(
    samples: Iterable[tuple[Any, Any]],
    transform: Transform | None = None,
    target_transform: Transform | None = None,
) -> tuple[Samples, Samples]:
    """Return the arrays of (input, target) pairs, for example of a torch dataset.

    Args:
        samples: pairs; an input that is a tuple is several inputs.
        transform: of each input; see `chain`.
        target_transform: of each target.

    Raises:
        UsageError: ``STO-T004`` without samples, ``STO-T004`` for what is no pair, or
            where samples differ in shape.
    """
    inputs, targets = [], []
    for index, sample in enumerate(samples):
        x, y = _as_pair(sample, index)
        inputs.append(transform(x) if transform else x)
        targets.append(target_transform(y) if target_transform else y)
    if not inputs:
        raise UsageError("STO-T004", "there are no samples", hint="at least one")
    return _stack(inputs, "the inputs"), _stack(targets, "the targets")


def _as_pair(sample: Any, index: int) -> tuple[Any, Any]:  # noqa: ANN401 - a dataset's own
    if isinstance(sample, (tuple, list)) and len(sample) == 2:  # noqa: PLR2004 - x and y
        return sample[0], sample[1]
    size = f" of {len(sample)}" if isinstance(sample, (tuple, list)) else ""
    raise UsageError(
        "STO-T004",
        f"sample {index} is a {type(sample).__name__}{size}, not an (input, target) pair",
        hint="several inputs are a tuple: ((a, b), target)",
    )


def _stack(values: list[Any], what: str) -> Samples:
    if isinstance(values[0], tuple):
        columns = zip(*values, strict=True)
        return tuple(
            _stack_arrays(list(column), f"{what} [{i}]")
            for i, column in enumerate(columns)
        )
    return _stack_arrays(values, what)


def _stack_arrays(values: list[Any], what: str) -> Array:
    arrays = [_as_array(value, what) for value in values]
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise _no_array(what, f"samples have the shapes {sorted(shapes)[:3]}")
    return np.stack(arrays)


def read_batches(loader: Iterable[tuple[Any, Any]]) -> list[Part]:
    """Return the batches of a loader, each a part.

    Raises:
        UsageError: ``STO-T004`` when it yields none.
    """
    parts = [Part(as_batch(x), as_batch(y, "the targets")) for x, y in loader]
    if not parts:
        raise UsageError(
            "STO-T004", "the data loader yields no batch", hint="at least one"
        )
    return parts


def read_arrays(dataset: object) -> tuple[Samples, Samples]:
    """Return inputs and targets of a pair of arrays or of pairs (a torch dataset).

    Raises:
        UsageError: ``STO-T004`` for anything else.
    """
    if isinstance(dataset, tuple) and len(dataset) == 2:  # noqa: PLR2004 - x and y
        return as_samples(dataset[0]), as_samples(dataset[1], "the targets")
    length = getattr(dataset, "__len__", None)
    if length is None:
        raise UsageError(
            "STO-T004",
            f"a {type(dataset).__name__} is no dataset of known length",
            hint="a torch dataset, or (inputs, targets)",
        )
    return collect(dataset[index] for index in range(length()))  # type: ignore[index]  # torch's map-style datasets


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
    whole, labels = _labelled(x, y)
    # Stable: the same parts on every machine.
    order = np.argsort(labels, kind="stable")
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
    (whole, labels), shuffler = _labelled(x, y), make_shuffler(seed)
    order = shuffler.permutation(len(whole))
    order = order[np.argsort(labels[order], kind="stable")]
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
        UsageError: ``STO-T004`` when alpha is not positive or parts stay too small.
    """
    if not alpha > 0.0:
        raise UsageError("STO-T004", f"alpha {alpha} is no concentration", hint="> 0")
    (whole, labels), shuffler = _labelled(x, y), make_shuffler(seed)
    # A small alpha often leaves a part empty: draw again, from the same stream.
    for _ in range(DRAWS):
        found = _deal(labels, parts, alpha, shuffler)
        if min(map(len, found)) >= max(1, least):
            return [whole.take(rows) for rows in found]
    raise UsageError(
        "STO-T004",
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


def _labelled(x: ArrayLike | Samples, y: ArrayLike) -> tuple[Part, Array]:
    """Return the whole of the samples, and their labels."""
    labels = as_samples(y, "the labels")
    if isinstance(labels, tuple) or labels.ndim != 1 or labels.dtype.kind not in "iub":
        raise UsageError(
            "STO-T004", "samples are split by labels, and these are none",
            hint="one whole number a sample",
        )  # fmt: skip
    return Part(as_samples(x), labels), labels


def _cut(order: Array, parts: int) -> list[Array]:
    if len(order) < parts:
        raise UsageError(
            "STO-T004",
            f"{len(order)} samples do not fill {parts} parts",
            hint="ask for fewer parts",
        )
    return np.array_split(order, parts)

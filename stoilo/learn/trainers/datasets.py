"""Whatever a researcher calls a dataset, as arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stoilo.core.errors import UsageError
from stoilo.learn.data import Part, Samples, as_batch, as_samples, collect

__all__ = ["read_arrays", "read_batches"]


def read_batches(loader: Iterable[tuple[Any, Any]]) -> list[Part]:
    """Return the batches of a loader, each a part.

    Raises:
        UsageError: ``STO-T006`` when it yields none.
    """
    parts = [Part(as_batch(x), as_batch(y, "the targets")) for x, y in loader]
    if not parts:
        raise UsageError(
            "STO-T006", "the data loader yields no batch", hint="at least one"
        )
    return parts


def read_arrays(dataset: object) -> tuple[Samples, Samples]:
    """Return inputs and targets of a pair of arrays or of pairs (a torch dataset).

    Raises:
        UsageError: ``STO-T006`` for anything else.
    """
    if isinstance(dataset, tuple) and len(dataset) == 2:  # noqa: PLR2004 - x and y
        return as_samples(dataset[0]), as_samples(dataset[1], "the targets")
    length = getattr(dataset, "__len__", None)
    if length is None:
        raise UsageError(
            "STO-T006",
            f"a {type(dataset).__name__} is no dataset of known length",
            hint="a torch dataset, or (inputs, targets)",
        )
    return collect(dataset[index] for index in range(length()))  # type: ignore[index]  # torch's map-style datasets

"""Data parts that are read when they are needed: data larger than this computer's memory.

A lazy part knows its size and its digest, the name under which it is stored; its arrays
come from a function (a file, a database). What it gives is checked against the digest
before any task names it, and let go of: one part at a time is in memory. Backends in this
process hold what their hosts compute with; a server's are stored there once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import numpy as np

from stoilo.client.capture.arguments import StoredValue
from stoilo.core.errors import UsageError
from stoilo.learn.core.data import Part, Samples
from stoilo.learn.core.tensors import Array


class LazyPart(Part):
    """Some samples, elsewhere.

    Args:
        load: reads them; called again whenever they are needed.
        samples: how many.
        nbytes: size of all arrays, bytes.
        digest: of the part as it is stored (see `name_part`).
    """

    __slots__ = ("digest", "load", "samples", "size")
    load: Callable[[], Part]
    samples: int
    size: int
    digest: str

    def __init__(
        self, load: Callable[[], Part], samples: int, nbytes: int, digest: str
    ) -> None:
        given = {"load": load, "samples": samples, "size": nbytes, "digest": digest}
        for name, value in given.items():
            object.__setattr__(self, name, value)  # a part never changes afterwards

    @classmethod
    def of(cls, load: Callable[[], Part]) -> Self:
        """Return the lazy part of what `load` gives, which is read once to know it."""
        whole = load()
        return cls(load, len(whole), whole.nbytes, name_part(whole))

    @classmethod
    def of_files(cls, x: str | Path, y: str | Path) -> Self:
        """Return the part of two files of numpy's (``.npy``), mapped, not read whole."""

        def load() -> Part:
            return Part(_map(x), _map(y))

        return cls.of(load)

    @property
    def x(self) -> Samples:
        """The inputs, read now."""
        return self._read().x

    @property
    def y(self) -> Samples:
        """The targets, read now."""
        return self._read().y

    @property
    def nbytes(self) -> int:
        """Size of all arrays, bytes."""
        return self.size

    def __len__(self) -> int:
        """Return the number of samples."""
        return self.samples

    def __repr__(self) -> str:
        """Return its size and name: its samples stay where they are."""
        return f"LazyPart({self.samples} samples, {self.digest[:16]})"

    def take(self, rows: Sequence[int] | slice | Array) -> Part:
        """Return the part of these samples, in memory."""
        return self._read().take(rows)

    def _read(self) -> Part:
        whole = self.load()
        check_name(self, name_part(whole))
        return whole


def name_part(part: Part) -> str:
    """Return the digest under which a part is stored; that of a lazy one is known."""
    if isinstance(part, LazyPart):
        return part.digest
    return StoredValue.of({"x": part.x, "y": part.y})[0].digest


def check_name(part: Part, digest: str) -> None:
    """Refuse what a lazy part gave when it is not what it was.

    Raises:
        UsageError: ``STO-T004``.
    """
    if isinstance(part, LazyPart) and part.digest != digest:
        raise UsageError(
            "STO-T004",
            f"a data part of {part.samples} samples is not what it was: its digest is"
            f" {digest[:16]}, not {part.digest[:16]}",
            hint="its source was changed; make the part anew, and begin a new training",
        )


def _map(file: str | Path) -> Array:
    # An array on the mapped bytes: the codec takes no subclass.
    found: Array = np.lib.format.open_memmap(file, mode="r").view(np.ndarray)
    return found

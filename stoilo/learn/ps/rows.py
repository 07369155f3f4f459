"""Large arrays in blocks of rows, so that no shard must keep, and write, a whole one.

A block is a key of its own: the ring spreads a tensor over the shards, and a push writes
the blocks that it changes. Only functions that act entry by entry (``add``, ``max``) mean
the same on blocks as on the whole. Source: Dean et al. 2012 (parameters over many shards).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.ps.values import Value
from stoilo.learn.tensors import Array, Form, Tensors, forms_of

__all__ = ["BLOCK_BYTES", "Block", "Layout"]

BLOCK_BYTES = 1 << 20
"""Most bytes of a block, unless one row alone has more."""


@dataclass(frozen=True, slots=True)
class Block:
    """Rows `start` to `stop` (without) of a tensor; the whole of it when `stop` is None."""

    key: str
    name: str
    start: int = 0
    stop: int | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """Which keys the tensors of a model are; follows from their forms alone.

    Attributes:
        forms: of the tensors, by name.
        blocks: by name, in the order of their rows.
    """

    forms: Mapping[str, Form]
    blocks: Mapping[str, tuple[Block, ...]]

    @classmethod
    def of(cls, tensors: Tensors, block_bytes: int = BLOCK_BYTES) -> Self:
        """Return the layout of `tensors`.

        Raises:
            UsageError: ``STO-T035`` when a tensor is called like another one's block.
        """
        blocks = {n: tuple(_cut(n, a, block_bytes)) for n, a in tensors.items()}
        keys = [block.key for part in blocks.values() for block in part]
        if len(set(keys)) < len(keys):
            raise _foreign("two tensors have the same name in part")
        return cls(forms_of(tensors), blocks)

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys."""
        return tuple(block.key for part in self.blocks.values() for block in part)

    def split(self, tensors: Tensors) -> dict[str, Array]:
        """Return the blocks of `tensors` (some of those of the layout) by their keys."""
        return {
            block.key: array if block.stop is None else array[block.start : block.stop]
            for name, array in tensors.items()
            for block in self.blocks[name]
        }

    def join(self, values: Mapping[str, Value]) -> dict[str, Array]:
        """Return the tensors that `values` are the blocks of, or raise ``STO-T035``."""
        found = {}
        for name, part in self.blocks.items():
            try:
                whole = _glue([np.asarray(values[block.key]) for block in part])
            except ValueError:
                raise _foreign(
                    f"the rows of {name[:60]!r} do not fit together"
                ) from None
            found[name] = whole
        if forms_of(found) != self.forms:
            raise _foreign("they have other types or shapes")
        return found

    def check_kept(self, keys: Iterable[str]) -> None:
        """Raise ``STO-T035`` when a server keeps these tensors cut in another way."""
        ours = set(self.keys)
        for key in keys:
            if key.partition("[")[0] in self.forms and key not in ours:
                raise _foreign(f"it keeps {key[:60]!r}")


def _cut(name: str, array: Array, block_bytes: int) -> Iterator[Block]:
    if array.ndim == 0 or array.nbytes <= block_bytes:
        yield Block(name, name)
        return
    rows = max(1, block_bytes // (array.nbytes // len(array)))
    for start in range(0, len(array), rows):
        stop = min(start + rows, len(array))
        yield Block(f"{name}[{start}:{stop}]", name, start, stop)


def _glue(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _foreign(why: str) -> UsageError:
    return UsageError("STO-T035", f"the parameter server keeps another model: {why}")

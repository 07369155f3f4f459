"""`numpy.nditer` for reading and writing elements, without its buffers.

The real one hands out views of memory that it frees when it is closed. This one walks
indices; what it gives are views of the operands themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

__all__ = ["nditer"]

_FLAGS = frozenset({"multi_index", "c_index", "f_index", "zerosize_ok", "refs_ok"})


def _as_operands(op: Any) -> list[Any]:
    return [np.asanyarray(item) for item in (op if type(op) in {list, tuple} else [op])]


def _is_writable(flags: Any, place: int, count: int) -> bool:
    chosen = flags or (["readonly"],) * count
    mine = chosen if isinstance(chosen[0], str) else chosen[place]
    return bool({"readwrite", "writeonly"} & set(mine))


class nditer:  # noqa: N801 - the library's name
    """``numpy.nditer`` over the broadcast of `op`, without buffering."""

    def __init__(
        self,
        op: Any,
        flags: Sequence[str] = (),
        op_flags: Any = None,
        *,
        order: str = "K",
    ) -> None:
        if unknown := set(flags) - _FLAGS:
            raise ValueError(f"nditer flags not served in a task: {sorted(unknown)}")
        operands = _as_operands(op)
        shape = np.broadcast_shapes(*(item.shape for item in operands))
        self.shape, self.ndim, self.nop = shape, len(shape), len(operands)
        self._views: tuple[Any, ...] = tuple(
            item
            if _is_writable(op_flags, place, len(operands)) and item.shape == shape
            else np.broadcast_to(item, shape)
            for place, item in enumerate(operands)
        )
        self.operands = tuple(operands)
        fortran = order == "F" or (
            order == "K" and all(item.flags.fnc for item in operands)
        )
        self._order = np.arange(int(np.prod(shape))).reshape(shape)
        self._walk = self._order.ravel("F" if fortran else "C").tolist()
        self._place = 0

    @property
    def itersize(self) -> int:
        """Elements in all."""
        return len(self._walk)

    @property
    def finished(self) -> bool:
        """Whether the last element is behind."""
        return self._place >= len(self._walk)

    @property
    def multi_index(self) -> tuple[int, ...]:
        """Where the iteration stands."""
        where = np.unravel_index(self._walk[self._place], self.shape)
        return tuple(map(int, where))

    @property
    def index(self) -> int:
        """Where the iteration stands, as one number in C order."""
        return int(self._walk[self._place])

    @property
    def value(self) -> Any:
        """The current element, or the tuple of them for several operands."""
        found = tuple(view[(*self.multi_index, ...)] for view in self._views)
        return found[0] if len(found) == 1 else found

    def iternext(self) -> bool:
        """Go on; return whether there is another element."""
        self._place += 1
        return not self.finished

    def reset(self) -> None:
        """Start again."""
        self._place = 0

    def __getitem__(self, place: int) -> Any:
        return self._views[place][(*self.multi_index, ...)]

    def __setitem__(self, place: int, value: Any) -> None:
        self._views[place][(*self.multi_index, ...)] = value

    def __len__(self) -> int:
        return self.nop

    def __iter__(self) -> Iterator[Any]:
        while not self.finished:
            yield self.value
            self._place += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_details: object) -> None:
        pass


nditer.__module__ = "numpy"

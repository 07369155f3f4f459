"""`numpy`: no uninitialised memory, no raw constructor of arrays, records or matrices."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from types import GenericAlias
from typing import Any, NoReturn, Self, TypeVar

import numpy as np
from numpy._typing import ArrayLike, DTypeLike
from numpy.lib import _index_tricks_impl

from stoilo.core.levels import Level
from stoilo.sandbox.facades.array_files import file_functions, text_functions
from stoilo.sandbox.facades.array_memory import call_zeroed, seal_exports
from stoilo.sandbox.language.rules import GuardError
from stoilo.sandbox.language.stand_ins import StandIn


def _build_numpy_emath(level: Level) -> dict[str, object]:
    """Return what the level lists of ``numpy.emath``."""
    names = level.modules["numpy.emath"].names
    return {name: getattr(np.emath, name) for name in names}


# `numpy.rec` and record functions: records from data, never from a file or raw memory


class RecarrayStandIn(metaclass=StandIn):
    """Stands for ``numpy.recarray`` in ``isinstance``."""

    __stoilo_real__ = np.recarray

    def __new__(cls, *_args: Any, **_options: Any) -> Any:
        """Refuse: the raw constructor shows whatever lies in memory."""
        raise TypeError("numpy.recarray() makes no arrays in a task: use numpy.rec")


def array(obj: Any, *args: Any, **options: Any) -> Any:
    """``numpy.rec.array`` of data: sequences and arrays.

    Bytes are refused: numpy takes those of forged objects too, and reads through them.
    """
    if obj is None or hasattr(obj, "readinto") or hasattr(obj, "__fspath__"):
        raise TypeError("numpy.rec.array() reads no files in a task")
    if isinstance(obj, bytes | bytearray | memoryview):
        raise TypeError("make records of bytes with numpy.frombuffer() in a task")
    return np.rec.array(obj, *args, **options)


def _build_records(_level: Level) -> dict[str, object]:
    importlib.import_module("numpy.lib.recfunctions")
    RecarrayStandIn.__name__ = RecarrayStandIn.__qualname__ = "recarray"
    RecarrayStandIn.__module__ = "numpy"
    return {"array": array, "recarray": RecarrayStandIn}


# `numpy.nditer` for reading and writing elements, without its buffers -----------------
#
# The real one hands out views of memory that it frees when it is closed. This one walks
# indices; what it gives are views of the operands themselves.


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


# `numpy`: no uninitialised memory, no raw array constructor ---------------------------


class NdarrayStandIn(metaclass=StandIn):
    """Stands for ``numpy.ndarray`` in annotations and ``isinstance``."""

    __stoilo_real__ = np.ndarray

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Any:
        """Refuse: the raw constructor shows whatever lies in memory."""
        raise TypeError("numpy.ndarray() makes no arrays in a task: use numpy.zeros")

    def __class_getitem__(cls, item: object) -> object:
        return GenericAlias(cls, item)  # calling an alias calls its origin


class MatrixStandIn(metaclass=StandIn):
    """Stands for ``numpy.matrix``, which a task cannot extend."""

    __stoilo_real__ = np.matrix

    def __new__(cls, *args: Any, **options: Any) -> Any:
        """Return a real one."""
        return np.matrix(*args, **options)


def empty(shape: Any, dtype: Any = float, order: Any = "C", **options: Any) -> Any:
    """Return zeros: what lies in free memory differs between honest copies."""
    return np.zeros(shape, dtype, order, **options)


def pad(array: Any, pad_width: Any, mode: Any = "constant", **options: Any) -> Any:
    """``numpy.pad``; the mode ``"empty"`` pads with zeros."""
    return call_zeroed(np.pad, array, pad_width, mode, **options)


def empty_like(prototype: Any, dtype: Any = None, **options: Any) -> Any:
    """Return zeros of the prototype's shape."""
    return np.zeros_like(prototype, dtype, **options)


def _no_variables(*_values: object) -> NoReturn:
    """Stand for ``bmat``, which would look up ``np.r_["name"]`` in whoever called."""
    raise GuardError("STO-G101", "numpy.r_ and c_ read no variables by their names")


ARRAY_ALIAS = GenericAlias(
    NdarrayStandIn,
    (tuple[Any, ...], np.dtype[TypeVar("ScalarT", bound=np.generic)]),  # type: ignore[misc]  # a value here
)
"""``numpy.typing.NDArray`` whose call reaches no raw constructor."""


def _build_numpy(_level: Level) -> dict[str, object]:
    NdarrayStandIn.__name__ = NdarrayStandIn.__qualname__ = "ndarray"
    NdarrayStandIn.__module__ = "numpy"
    MatrixStandIn.__name__ = MatrixStandIn.__qualname__ = "matrix"
    MatrixStandIn.__module__ = "numpy"
    seal_exports()
    indexing: Any = _index_tricks_impl.AxisConcatenator
    indexing.makemat = staticmethod(MatrixStandIn)  # ``np.c_.makemat``
    _index_tricks_impl.__dict__["matrixlib"].bmat = _no_variables
    return {
        "empty": empty,
        "empty_like": empty_like,
        "matrix": MatrixStandIn,
        "ndarray": NdarrayStandIn,
        "nditer": nditer,
        "pad": pad,
        "recarray": RecarrayStandIn,
        **file_functions(),
        **text_functions(),
    }


def _build_numpy_typing(_level: Level) -> dict[str, object]:
    return {"ArrayLike": ArrayLike, "DTypeLike": DTypeLike, "NDArray": ARRAY_ALIAS}


# `numpy.ma`: nothing uninitialised, no addresses, no way to the raw constructor -------


_UNINITIALISED = ("empty", "empty_like", "masked_all", "masked_all_like")


def _zeroed(name: str) -> Any:
    real = getattr(np.ma, name)

    def function(*args: Any, **options: Any) -> Any:
        return call_zeroed(real, *args, **options)

    function.__name__ = function.__qualname__ = name
    return function


def _build_numpy_ma(_level: Level) -> dict[str, object]:
    # Looked up here: numpy imports `ma` when it is first asked for, for 10 ms.
    real: Any = np.ma.MaskedArray

    class MaskedArray(metaclass=StandIn):
        """Stands for ``numpy.ma.MaskedArray``."""

        __stoilo_real__ = real

        def __new__(cls, *args: Any, **options: Any) -> Any:
            """Return a real one."""
            return real(*args, **options)

    MaskedArray.__module__, MaskedArray.__qualname__ = "numpy.ma", "MaskedArray"
    # What instances show: addresses, and the class behind ``numpy.ndarray``.
    if hasattr(real, "ids"):
        del real.ids
    real.baseclass = property(lambda _self: NdarrayStandIn)
    return {
        **{name: _zeroed(name) for name in _UNINITIALISED},
        "MaskedArray": MaskedArray,
        "masked_array": MaskedArray,
    }


FACADES = {
    "numpy": _build_numpy,
    "numpy.emath": _build_numpy_emath,
    "numpy.lib.recfunctions": _build_records,
    "numpy.ma": _build_numpy_ma,
    "numpy.rec": _build_records,
    "numpy.typing": _build_numpy_typing,
}

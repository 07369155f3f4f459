"""`numpy`: no uninitialised memory, no raw constructors, no entropy but the admission's."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from types import GenericAlias
from typing import Any, NoReturn, Self, TypeVar

import numpy as np
from numpy._typing import ArrayLike, DTypeLike
from numpy.lib import _index_tricks_impl
from numpy.random import bit_generator

from stoilo.core.levels import Level
from stoilo.sandbox.facades.array_files import file_functions, text_functions
from stoilo.sandbox.facades.array_memory import call_zeroed, seal_exports
from stoilo.sandbox.language.rules import GuardError
from stoilo.sandbox.language.runtime import RUN
from stoilo.sandbox.language.substitutes import StandIn


def _build_numpy_emath(level: Level) -> dict[str, object]:
    names = level.modules["numpy.emath"].names
    return {name: getattr(np.emath, name) for name in names}


# `numpy.rec` and record functions: records from data, never from a file or raw memory


class RecarrayStandIn(metaclass=StandIn):
    """Stands for ``numpy.recarray`` in ``isinstance``."""

    __stoilo_real__ = np.recarray

    def __new__(cls, *_args: Any, **_options: Any) -> Any:
        # The raw constructor shows whatever lies in memory
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
        return len(self._walk)

    @property
    def finished(self) -> bool:
        return self._place >= len(self._walk)

    @property
    def multi_index(self) -> tuple[int, ...]:
        where = np.unravel_index(self._walk[self._place], self.shape)
        return tuple(map(int, where))

    @property
    def index(self) -> int:
        return int(self._walk[self._place])

    @property
    def value(self) -> Any:
        found = tuple(view[(*self.multi_index, ...)] for view in self._views)
        return found[0] if len(found) == 1 else found

    def iternext(self) -> bool:
        self._place += 1
        return not self.finished

    def reset(self) -> None:
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
        # The raw constructor shows whatever lies in memory
        raise TypeError("numpy.ndarray() makes no arrays in a task: use numpy.zeros")

    def __class_getitem__(cls, item: object) -> object:
        return GenericAlias(cls, item)  # calling an alias calls its origin


class MatrixStandIn(metaclass=StandIn):
    """Stands for ``numpy.matrix``, which a task cannot extend."""

    __stoilo_real__ = np.matrix

    def __new__(cls, *args: Any, **options: Any) -> Any:
        return np.matrix(*args, **options)


def empty(shape: Any, dtype: Any = float, order: Any = "C", **options: Any) -> Any:
    """Return zeros: what lies in free memory differs between honest copies."""
    return np.zeros(shape, dtype, order, **options)


def pad(array: Any, pad_width: Any, mode: Any = "constant", **options: Any) -> Any:
    # The mode ``"empty"`` pads with zeros
    return call_zeroed(np.pad, array, pad_width, mode, **options)


def empty_like(prototype: Any, dtype: Any = None, **options: Any) -> Any:
    """Return zeros of the prototype's shape."""
    return np.zeros_like(prototype, dtype, **options)


def _no_variables(*_values: object) -> NoReturn:
    # ``bmat`` would look up ``np.r_["name"]`` among the variables of whoever called: ours.
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


# `numpy.random`: a generator made without a seed takes the admission's -----------------


_BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64", "SeedSequence")


def default_rng(seed: Any = None) -> np.random.Generator:
    return np.random.default_rng(RUN.next_seed() if seed is None else seed)


def legacy_words() -> list[int]:
    """Return a seed in the form that the legacy generator takes: 32-bit words."""
    number = RUN.next_seed()
    return [number >> shift & 0xFFFFFFFF for shift in range(0, 256, 32)]


def seed(seed: Any = None) -> None:
    np.random.seed(legacy_words() if seed is None else seed)  # noqa: NPY002 - the façade


class RandomState(metaclass=StandIn):
    """Stands for ``numpy.random.RandomState``."""

    __stoilo_real__ = np.random.RandomState

    def __new__(cls, seed: Any = None) -> Any:
        # Its own constructor would ask the system for entropy
        if isinstance(seed, np.random.BitGenerator):
            return np.random.RandomState(seed)
        state = np.random.RandomState(np.random.MT19937(0))
        state.seed(legacy_words() if seed is None else seed)
        return state


class Generator(metaclass=StandIn):
    """Stands for ``numpy.random.Generator``.

    The real class hands out its methods unbound, and those take any object for ``self``
    without looking: its memory would be read as pointers to functions.
    """

    __stoilo_real__ = np.random.Generator

    def __new__(cls, bit_generator: Any) -> Any:
        return np.random.Generator(bit_generator)


def _seed_bits(count: int) -> int:
    # ``secrets.randbits``, from the admission's seed
    return RUN.next_seed() & (1 << count) - 1


def _seeded(name: str) -> type:
    real = getattr(np.random, name)

    class Seeded(metaclass=StandIn):
        """Stands for a bit generator or seed sequence."""

        __stoilo_real__ = real

        def __new__(cls, seed: Any = None, **options: Any) -> Any:
            if seed is None and not {"entropy", "key", "seed"} & set(options):
                seed = RUN.next_seed()
            return real(**options) if seed is None else real(seed, **options)

    Seeded.__name__ = Seeded.__qualname__ = name
    Seeded.__module__ = "numpy.random"
    return Seeded


def _build_numpy_random(_level: Level) -> dict[str, object]:
    # what asks for entropy inside the library gets a seed
    # ``jumped()`` and others make a generator without a seed first.
    bit_generator.randbits = _seed_bits  # type: ignore[attr-defined]  # undeclared
    RandomState.__module__ = Generator.__module__ = "numpy.random"
    return {
        **{name: _seeded(name) for name in _BIT_GENERATORS},
        "Generator": Generator,
        "RandomState": RandomState,
        "default_rng": default_rng,
        "seed": seed,
    }


FACADES = {
    "numpy": _build_numpy,
    "numpy.emath": _build_numpy_emath,
    "numpy.lib.recfunctions": _build_records,
    "numpy.ma": _build_numpy_ma,
    "numpy.random": _build_numpy_random,
    "numpy.rec": _build_records,
    "numpy.typing": _build_numpy_typing,
}

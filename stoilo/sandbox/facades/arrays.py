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
from stoilo.sandbox.facades.array_files import FILE_FUNCTIONS, TEXT_FUNCTIONS
from stoilo.sandbox.facades.array_memory import call_zeroed, seal_exports
from stoilo.sandbox.language.rules import GuardError
from stoilo.sandbox.language.runtime import RUN
from stoilo.sandbox.language.substitutes import by_name, stand_for


def _build_numpy_emath(level: Level) -> dict[str, object]:
    names = level.modules["numpy.emath"].names
    return {name: getattr(np.emath, name) for name in names}


# `numpy.rec` and record functions: records from data, never from a file or raw memory


def _no_raw_records(*_args: Any, **_options: Any) -> NoReturn:
    # The raw constructor shows whatever lies in memory
    raise TypeError("numpy.recarray() makes no arrays in a task: use numpy.rec")


RECARRAY = stand_for(np.recarray, _no_raw_records, module="numpy")


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
    return {"array": array, "recarray": RECARRAY}


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


def _no_raw_array(*_args: Any, **_options: Any) -> NoReturn:
    # The raw constructor shows whatever lies in memory
    raise TypeError("numpy.ndarray() makes no arrays in a task: use numpy.zeros")


NDARRAY = stand_for(np.ndarray, _no_raw_array)
MATRIX = stand_for(np.matrix, np.matrix)


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
    NDARRAY,
    (tuple[Any, ...], np.dtype[TypeVar("ScalarT", bound=np.generic)]),  # type: ignore[misc]  # a value here
)
"""``numpy.typing.NDArray`` whose call reaches no raw constructor."""


def _build_numpy(_level: Level) -> dict[str, object]:
    seal_exports()
    indexing: Any = _index_tricks_impl.AxisConcatenator
    indexing.makemat = staticmethod(MATRIX)  # ``np.c_.makemat``
    _index_tricks_impl.__dict__["matrixlib"].bmat = _no_variables
    return {
        **by_name(empty, empty_like, nditer, pad),
        **by_name(MATRIX, NDARRAY, RECARRAY),
        **FILE_FUNCTIONS,
        **TEXT_FUNCTIONS,
    }


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

    stand_in = stand_for(real, real, module="numpy.ma")
    # What instances show: addresses, and the class behind ``numpy.ndarray``.
    if hasattr(real, "ids"):
        del real.ids
    real.baseclass = property(lambda _self: NDARRAY)
    return {
        **{name: _zeroed(name) for name in _UNINITIALISED},
        "MaskedArray": stand_in,
        "masked_array": stand_in,
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


def _make_state(seed: Any = None) -> np.random.RandomState:
    # Its own constructor would ask the system for entropy
    if isinstance(seed, np.random.BitGenerator):
        return np.random.RandomState(seed)
    state = np.random.RandomState(np.random.MT19937(0))
    state.seed(legacy_words() if seed is None else seed)
    return state


def _seed_bits(count: int) -> int:
    # ``secrets.randbits``, from the admission's seed
    return RUN.next_seed() & (1 << count) - 1


def _seeded(real: Any) -> type:
    """Return what stands for a bit generator or seed sequence."""

    def make(seed: Any = None, **options: Any) -> Any:
        if seed is None and not {"entropy", "key", "seed"} & set(options):
            seed = RUN.next_seed()
        return real(**options) if seed is None else real(seed, **options)

    stand_in: type = stand_for(real, make, module="numpy.random")
    return stand_in


def _build_numpy_random(_level: Level) -> dict[str, object]:
    # what asks for entropy inside the library gets a seed
    # ``jumped()`` and others make a generator without a seed first.
    bit_generator.randbits = _seed_bits  # type: ignore[attr-defined]  # undeclared
    random: Any = np.random
    return {
        **{name: _seeded(getattr(random, name)) for name in _BIT_GENERATORS},
        # The real class hands out its methods unbound, and those take any object for
        # ``self`` without looking: its memory would be read as pointers to functions.
        "Generator": stand_for(
            random.Generator, random.Generator, module="numpy.random"
        ),
        "RandomState": stand_for(
            random.RandomState, _make_state, module="numpy.random"
        ),
        **by_name(default_rng, seed),
    }


FACADES: dict[str, object] = {
    "numpy": _build_numpy,
    "numpy.emath": _build_numpy_emath,
    "numpy.lib.recfunctions": _build_records,
    "numpy.ma": _build_numpy_ma,
    "numpy.random": _build_numpy_random,
    "numpy.rec": _build_records,
    "numpy.typing": {
        "ArrayLike": ArrayLike,
        "DTypeLike": DTypeLike,
        "NDArray": ARRAY_ALIAS,
    },
}

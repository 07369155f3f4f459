"""What a parameter server keeps: arrays, numbers and counts by name; and their bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

import msgspec
import numpy as np

from stoilo.core.errors import TrustError, UsageError
from stoilo.learn.core.states import unfit
from stoilo.learn.core.tensors import Array, Form, Tensors, forms_of

if TYPE_CHECKING:
    # An array of numbers, a number, or numbers by name (counts).
    Value: TypeAlias = Array | int | float | dict[str, int | float]
else:
    Value = Any  # msgspec takes no array in a union: `check_kind` tells what is one
T = TypeVar("T")

# Of a value: with its name and marks it fits a frame, in which it is read.
MOST_BYTES = 252 << 20
_KINDS = "biuf"  # numpy's letters: truth values, whole and real numbers
_ARRAY = 1  # msgpack's extension type of our arrays: (type, shape, bytes)


def encode(record: object) -> bytes:
    """Return a record as msgpack, or raise ``STO-T068``: a number is too large for it."""
    try:
        return msgspec.msgpack.encode(record, enc_hook=_spread)
    except (OverflowError, TypeError) as error:
        raise _no_value(str(error)) from None


def _spread(value: object) -> msgspec.msgpack.Ext:
    if not isinstance(value, np.ndarray):
        raise NotImplementedError
    # Little-endian: a file may be opened on another machine.
    little = value.astype(value.dtype.newbyteorder("<"), copy=False)
    whole = (value.dtype.name, value.shape, little.tobytes())
    return msgspec.msgpack.Ext(_ARRAY, msgspec.msgpack.encode(whole))


def decode(body: bytes, kind: type[T]) -> T:
    """Return the record, or raise ``STO-T011`` for bytes that are none."""
    try:
        return msgspec.msgpack.decode(
            body, type=kind, ext_hook=_join, dec_hook=_as_array
        )
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        raise TrustError(
            "STO-T011", f"bytes that are no value: {str(error)[:200]}"
        ) from None


def _join(code: int, data: memoryview) -> Array:
    name, shape, body = msgspec.msgpack.decode(
        data, type=tuple[str, tuple[int, ...], bytes]
    )
    kind = np.dtype(name)
    if code != _ARRAY or kind.kind not in _KINDS:
        raise ValueError("an array of no numbers")
    array = np.frombuffer(body, kind.newbyteorder("<")).reshape(shape)
    return array.astype(kind)


def _as_array(_: type, value: object) -> Array:
    if not isinstance(value, np.ndarray):
        raise ValueError("no array")  # noqa: TRY004 - msgspec's own errors are such
    return value


def check_kind(value: object) -> None:
    """Raise ``STO-T068`` for what is no `Value`."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in _KINDS:
            raise _no_value(f"an array of {value.dtype}")
        return
    numbers = value.values() if isinstance(value, dict) else [value]
    names = value if isinstance(value, dict) else ()
    if not all(isinstance(number, int | float) for number in numbers) or not all(
        isinstance(name, str) for name in names
    ):
        raise _no_value(type(value).__name__)


def _no_value(what: str) -> UsageError:
    return UsageError("STO-T068", f"a parameter server does not keep {what}")


BLOCK_BYTES = 1 << 20  # most bytes of a block, unless one row alone has more


@dataclass(frozen=True, slots=True)
class Block:
    """Rows `start` to `stop` (without) of a tensor; the whole of it when `stop` is None."""

    key: str
    name: str
    start: int = 0
    stop: int | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """Which keys the tensors of a model are; follows from their forms alone."""

    forms: Mapping[str, Form]  # of the tensors, by name
    blocks: Mapping[str, tuple[Block, ...]]  # by name, in the order of their rows

    @classmethod
    def of(cls, tensors: Tensors, block_bytes: int = BLOCK_BYTES) -> Self:
        """Return the layout of `tensors`.

        Raises:
            UsageError: ``STO-T012`` when a tensor is called like another one's block.
        """
        blocks = {n: tuple(_cut(n, a, block_bytes)) for n, a in tensors.items()}
        keys = [block.key for part in blocks.values() for block in part]
        if len(set(keys)) < len(keys):
            raise unfit("two tensors have the same name in part")
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
        """Return the tensors that `values` are the blocks of, or raise ``STO-T012``."""
        found = {}
        for name, part in self.blocks.items():
            try:
                whole = _glue([np.asarray(values[block.key]) for block in part])
            except ValueError:
                raise unfit(f"the rows of {name[:60]!r} do not fit together") from None
            found[name] = whole
        if forms_of(found) != self.forms:
            raise unfit("the server keeps other types or shapes")
        return found

    def check_kept(self, keys: Iterable[str]) -> None:
        """Raise ``STO-T012`` when a server keeps these tensors cut in another way."""
        ours = set(self.keys)
        for key in keys:
            if key.partition("[")[0] in self.forms and key not in ours:
                raise unfit(f"the server keeps {key[:60]!r}")


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

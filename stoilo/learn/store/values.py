"""What a parameter server keeps: arrays, numbers and counts by name; and their bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np

from stoilo.core.errors import TrustError, UsageError
from stoilo.learn.core.tensors import Array, Form, Tensors, forms_of

# An array of numbers, a number, or numbers by name (counts).
Value: TypeAlias = Array | int | float | dict[str, int | float]

# Of a value: with its name and marks it fits a frame, in which it is read.
MOST_BYTES = 252 << 20
_KINDS = "biuf"  # numpy's letters: truth values, whole and real numbers


@dataclass(frozen=True, slots=True)
class Encoded:
    """A value as it lies in a shard's file."""

    form: str  # numpy's name of the type and the shape as JSON; ``null`` for plain data
    body: bytes  # little-endian bytes in C order, or JSON


def encode_value(value: Value) -> Encoded:
    """Return the bytes of `value`, or raise ``STO-T068``: it is none, or too large."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in _KINDS:
            raise _no_value(f"an array of {value.dtype}")
        _check_size(value.nbytes)
        # A file may be opened on another machine.
        little = value.astype(value.dtype.newbyteorder("<"), copy=False)
        form = json.dumps([value.dtype.name, list(value.shape)])
        return Encoded(form, little.tobytes())
    if not _is_plain(value):
        raise _no_value(type(value).__name__)
    body = json.dumps(value).encode()
    _check_size(len(body))
    return Encoded("null", body)


def _check_size(size: int) -> None:
    if size > MOST_BYTES:
        raise _no_value(f"{size} bytes under one name")


def decode_value(encoded: Encoded) -> Value:
    """Return the value, or raise ``STO-T069`` for bytes that are none."""
    try:
        form = json.loads(encoded.form)
        if form is None:
            plain: Value = json.loads(encoded.body)
            if _is_plain(plain):
                return plain
        elif np.dtype(form[0]).kind in _KINDS:
            kind = np.dtype(form[0]).newbyteorder("<")
            array = np.frombuffer(encoded.body, kind).reshape(form[1])
            return array.astype(kind.newbyteorder("="))
    except (ValueError, TypeError, IndexError, KeyError) as error:
        raise _damaged() from error
    raise _damaged()


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(k, str) and _is_number(v) for k, v in value.items())
    return _is_number(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _no_value(what: str) -> UsageError:
    return UsageError("STO-T068", f"a parameter server does not keep {what}")


def _damaged() -> TrustError:
    return TrustError("STO-T069", "a shard's file holds a value that is none")


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

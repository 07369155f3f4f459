"""The decoding half of the skeleton codec; see `stoilo.core.codec.skeleton`."""

from __future__ import annotations

import math
import struct
from array import array
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import msgspec

from stoilo.core.codec.nodes import (
    BlobRef,
    ClassRef,
    FunctionRef,
    Instance,
    Ndarray,
    Node,
    NumpyScalar,
    Tensor,
    check_array,
    check_name,
    item_bytes,
)
from stoilo.core.errors import TrustError, UsageError
from stoilo.core.libraries import is_listed
from stoilo.core.types import BOUNDS

MAX_EQUAL_HASHES = 64

# The wire form's constants and bounds, for both halves

MAGIC = b"STO\x01"
ALIGNMENT = 16
INT64 = range(-(2**63), 2**63)
U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")
I64 = struct.Struct("<q")
F64 = struct.Struct("<d")
C128 = struct.Struct("<dd")
DATETIME = struct.Struct("<qBBq")
YEAR_ONE = datetime(1, 1, 1)  # noqa: DTZ001 - the origin of naive wall fields
MICROSECOND = timedelta(microseconds=1)
SCALARS = frozenset({type(None), bool, int, float, str, bytes})
_HASHABLE = SCALARS | {complex, datetime}


class SkeletonBounds(msgspec.Struct, frozen=True):
    """How much one value may hold: nesting, elements, encoded bytes; what may stand in it."""

    depth: int = BOUNDS.value_depth
    nodes: int = BOUNDS.value_nodes
    size: int = BOUNDS.value_bytes
    # whether it may name functions, classes and blobs, as arguments do
    references: bool = True
    # bytes that may be copied: outside of arrays, and of booleans
    loose: int = BOUNDS.value_bytes


DEFAULT_BOUNDS = SkeletonBounds()
# For results: data, and nothing that the receiver would have to look up
DATA_BOUNDS = SkeletonBounds(references=False)


def is_float_list(items: list[Node]) -> bool:
    """Return whether every item is exactly a float, and there is one."""
    return bool(items) and all(type(item) is float for item in items)


def is_int64_list(items: list[Node]) -> bool:
    """Return whether every item is exactly an int of 64 bits, and there is one."""
    return bool(items) and all(type(item) is int and item in INT64 for item in items)


def check_key(key: Node, fault: type[TrustError | UsageError]) -> None:
    """Refuse keys that do not hash by value, including inside tuples; NaN is no key."""
    if type(key) in {tuple, frozenset}:
        for item in key:
            check_key(item, fault)
    elif type(key) not in _HASHABLE:
        raise fault(
            "STO-D001", f"a {type(key).__name__} cannot be a key or set element"
        )
    elif key != key:  # noqa: PLR0124 - NaN
        raise fault("STO-D001", "NaN cannot be a key or set element")


def _check_spread(keys: list[Node]) -> None:
    """Refuse keys made to collide: filling a table with them takes quadratic time."""
    if len(keys) <= MAX_EQUAL_HASHES or all(type(key) in {str, bytes} for key in keys):
        return
    ((_, worst),) = Counter(map(hash, keys)).most_common(1)
    if worst > MAX_EQUAL_HASHES:
        raise TrustError("STO-D002", "the keys of a table are built to collide")


class Reader:
    """Reads nodes from a view; every length is checked against what is there."""

    def __init__(self, view: memoryview, bounds: SkeletonBounds) -> None:
        self.view = view
        self.at = len(MAGIC)
        self.left = bounds.nodes
        self.depth = bounds.depth
        self.readers = _READERS if bounds.references else _DATA_READERS
        self.stop = bounds.loose  # beyond it no byte is read, but for arrays'

    def _take(self, size: int) -> memoryview:
        end = self.at + size
        if end > len(self.view):
            raise TrustError("STO-D002", "an encoded value is cut short")
        if end > self.stop:
            raise TrustError("STO-D005", "an encoded value has too many loose bytes")
        chunk = self.view[self.at : end]
        self.at = end
        return chunk

    def _unpack(self, form: struct.Struct) -> tuple[int, ...]:
        return form.unpack(self._take(form.size))

    def _read_u32(self) -> int:
        return int(self._unpack(U32)[0])

    def _read_count(self) -> int:
        """Return an element count that the remaining bytes and bounds can hold."""
        count = self._read_u32()
        if count > len(self.view) - self.at:
            raise TrustError("STO-D002", "an encoded value is cut short")
        if count > self.left:
            raise TrustError("STO-D005", "an encoded value has too many elements")
        return count

    def read_node(self, depth: int) -> Node:
        """Read one node, at nesting `depth`."""
        self.left -= 1
        if self.left < 0:
            raise TrustError("STO-D005", "an encoded value has too many elements")
        if depth > self.depth:
            raise TrustError("STO-D005", "an encoded value is nested too deep")
        read = self.readers.get(self._take(1)[0])
        if read is None:
            raise TrustError("STO-D002", "an encoded value holds an unknown tag")
        return read(self, depth)

    def _read_long(self, _: int) -> int:
        data = self._take(self._read_u32())
        value = int.from_bytes(data, "little", signed=True)
        if value in INT64 or (value + (value < 0)).bit_length() // 8 + 1 != len(data):
            raise TrustError("STO-D002", "an integer is not in its shortest form")
        return value

    def _read_utf8(self, size: int) -> str:
        try:
            return str(self._take(size), "utf-8")
        except UnicodeDecodeError:
            raise TrustError("STO-D002", "text is not UTF-8") from None

    def _read_raw(self, _: int) -> bytes:
        return bytes(self._take(int(self._unpack(U64)[0])))

    def _read_nodes(self, depth: int) -> list[Node]:
        return [self.read_node(depth + 1) for _ in range(self._read_count())]

    def _read_list(self, depth: int) -> list[Node]:
        items = self._read_nodes(depth)
        if is_float_list(items) or is_int64_list(items):
            raise TrustError("STO-D002", "a list of numbers is not packed")
        return items

    def _read_packed(self, kind: str) -> list[Node]:
        count = self._read_u32()
        if not count:
            raise TrustError("STO-D002", "an empty list is packed")
        return array(kind, bytes(self._take(count * 8))).tolist()

    def _read_dict(self, depth: int) -> dict[Node, Node]:
        pairs = [
            (self._read_key(depth + 1), self.read_node(depth + 1))
            for _ in range(self._read_count())
        ]
        _check_spread([key for key, _ in pairs])
        table = dict(pairs)
        if len(table) != len(pairs):
            raise TrustError("STO-D002", "a table has the same key twice")
        return table

    def _read_key(self, depth: int) -> Node:
        key = self.read_node(depth)
        if type(key) not in SCALARS or key != key:  # noqa: PLR0124 - NaN
            check_key(key, TrustError)
        return key

    def _read_elements(self, depth: int) -> list[Node]:
        """Read set elements, which come in strictly rising order of their encodings."""
        items: list[Node] = []
        before: bytes | None = None
        for _ in range(self._read_count()):
            start = self.at
            items.append(self._read_key(depth + 1))
            encoding = bytes(self.view[start : self.at])
            if before is not None and encoding <= before:
                raise TrustError("STO-D002", "a set is not in canonical order")
            before = encoding
        _check_spread(items)
        if len(set(items)) != len(items):
            raise TrustError("STO-D002", "a set has the same element twice")
        return items

    def _read_datetime(self, _: int) -> datetime:
        wall, fold, has_zone, offset = self._unpack(DATETIME)
        if fold > 1 or has_zone > 1 or (not has_zone and offset):
            raise TrustError("STO-D002", "a datetime is not in its canonical form")
        try:
            zone = timezone(timedelta(microseconds=offset)) if has_zone else None
            moment = YEAR_ONE + timedelta(microseconds=wall)
            return moment.replace(tzinfo=zone, fold=fold)
        except (ValueError, OverflowError):
            raise TrustError("STO-D002", "a datetime is out of range") from None

    def _read_short(self) -> str:
        return self._read_utf8(self._take(1)[0])

    def _read_name(self) -> str:
        text = self._read_short()
        check_name(text)
        return text

    def _read_array_parts(self) -> tuple[str, tuple[int, ...], memoryview]:
        dtype = self._read_short()
        size = item_bytes(dtype)
        ndim = self._take(1)[0]
        shape = tuple([int(self._unpack(U64)[0]) for _ in range(ndim)])
        if any(self._take(-self.at % ALIGNMENT)):
            raise TrustError("STO-D002", "an array's padding is not zero")
        size *= math.prod(shape)
        self.stop += 0 if dtype == "bool" else size
        data = self._take(size)
        check_array(dtype, shape, size)
        _check_booleans(dtype, data)
        return dtype, shape, data

    def _read_scalar(self, _: int) -> NumpyScalar:
        dtype = self._read_short()
        data = self._take(item_bytes(dtype))
        _check_booleans(dtype, data)
        return NumpyScalar(dtype, bytes(data))

    def _read_instance(self, depth: int) -> Instance:
        class_name = self._read_name()
        base = self.read_node(depth + 1)
        count = self._read_count()
        state = dict(self._read_attributes(count, depth))
        if len(state) != count:
            raise TrustError("STO-D002", "an instance has the same attribute twice")
        return Instance(class_name, state, base)

    def _read_attributes(self, count: int, depth: int) -> list[tuple[str, Node]]:
        return [(self._read_name(), self.read_node(depth + 1)) for _ in range(count)]

    def _read_blob(self, _: int) -> BlobRef:
        index = self._read_u32()
        if index >= BOUNDS.blobs_per_task:
            raise TrustError("STO-D002", "a blob reference is out of range")
        return BlobRef(index)


def _check_booleans(dtype: str, data: memoryview) -> None:
    if dtype == "bool" and bytes(data).strip(b"\x00\x01"):
        raise TrustError("STO-D002", "a boolean array holds something else")


_READERS: dict[int, Callable[[Reader, int], Node]] = {
    ord("N"): lambda _, __: None,
    ord("T"): lambda _, __: True,
    ord("F"): lambda _, __: False,
    ord("i"): lambda reader, _: reader._unpack(I64)[0],
    ord("I"): Reader._read_long,
    ord("f"): lambda reader, _: reader._unpack(F64)[0],
    ord("c"): lambda reader, _: complex(*reader._unpack(C128)),
    ord("s"): lambda reader, _: reader._read_utf8(reader._read_u32()),
    ord("b"): Reader._read_raw,
    ord("l"): Reader._read_list,
    ord("L"): lambda reader, _: reader._read_packed("d"),
    ord("P"): lambda reader, _: reader._read_packed("q"),
    ord("t"): lambda reader, depth: tuple(reader._read_nodes(depth)),
    ord("d"): Reader._read_dict,
    ord("e"): lambda reader, depth: set(reader._read_elements(depth)),
    ord("z"): lambda reader, depth: frozenset(reader._read_elements(depth)),
    ord("D"): Reader._read_datetime,
    ord("a"): lambda reader, _: Ndarray(*reader._read_array_parts()),
    ord("x"): lambda reader, _: Tensor(*reader._read_array_parts()),
    ord("n"): Reader._read_scalar,
    ord("R"): lambda reader, _: FunctionRef(reader._read_name()),
    ord("C"): lambda reader, _: ClassRef(reader._read_name()),
    ord("O"): Reader._read_instance,
    ord("B"): Reader._read_blob,
}


def _refuse_reference(_: Reader, __: int) -> Node:
    raise TrustError("STO-D002", "a reference stands where only data may")


def _read_library_value(reader: Reader, depth: int) -> Node:
    # Data, too, where a described library lists its class
    node = reader._read_instance(depth)
    if not is_listed(node.class_name):
        _refuse_reference(reader, depth)
    return node


_DATA_READERS = _READERS | dict.fromkeys(b"RCB", _refuse_reference)
_DATA_READERS[ord("O")] = _read_library_value

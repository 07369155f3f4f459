"""The skeleton codec: strict, bounded, one encoding per value, arrays without copies.

Wire form (little-endian): ``STO`` 01, then one node. A node is a tag byte and

    N T F               None, True, False
    i / I               int64 / longer two's complement: u32 length, minimal bytes
    f c                 float64, two float64 (every bit pattern is kept)
    s b                 u32 length, UTF-8 / u64 length, bytes
    l t                 u32 count, nodes
    L P                 list of floats / of int64 only: u32 count, packed items
    d                   u32 count, key and value nodes; keys are hashable and unique
    e z                 set, frozenset: u32 count, nodes in order of their encodings
    D                   datetime: i64 µs since year 1, u8 fold, u8 zone?, i64 zone µs
    a x                 array, tensor: u8 dtype length, dtype, u8 ndim, u64 extents,
                        zeros up to a multiple of 16, data
    n                   numpy scalar: u8 dtype length, dtype, data
    R C                 function, class: u8 length, name
    O                   instance: u8 length, name, base node, u32 count, (name, node)
    B                   blob reference: u32 index

`decode` is total: any bytes end in a value or in a `TrustError` (``STO-D…``), and it never
builds an object of any class but those of `stoilo.core.codec.nodes`. A value that decodes
encodes to the same bytes again. It needs neither numpy nor torch. `nodes_equal` is the default
comparison of two results.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from datetime import datetime, timezone

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
)
from stoilo.core.codec.reader import (
    ALIGNMENT,
    C128,
    DATETIME,
    DEFAULT_BOUNDS,
    F64,
    I64,
    INT64,
    MAGIC,
    MICROSECOND,
    U32,
    U64,
    YEAR_ONE,
    Reader,
    SkeletonBounds,
    check_key,
    is_float_list,
    is_int64_list,
)
from stoilo.core.digests import Buffer
from stoilo.core.errors import TrustError, UsageError
from stoilo.core.types import BOUNDS


class Writer:
    """Collects chunks; knows its position for array alignment."""

    def __init__(self, bounds: SkeletonBounds) -> None:
        self.chunks: list[bytes | memoryview] = [MAGIC]
        self.at = len(MAGIC)
        self.left = bounds.nodes
        self.bounds = bounds

    def put(self, *chunks: bytes | memoryview) -> None:
        """Append encoded bytes."""
        for chunk in chunks:
            self.chunks.append(chunk)
            self.at += len(chunk)
        if self.at > self.bounds.size:
            raise UsageError(
                "STO-D005", f"the value is over {self.bounds.size} bytes encoded"
            )

    def write_node(self, node: Node, depth: int) -> None:
        """Append one node, at nesting `depth`."""
        self.left -= 1
        if self.left < 0:
            raise UsageError(
                "STO-D005", f"the value has over {self.bounds.nodes} elements"
            )
        if depth > self.bounds.depth:
            raise UsageError(
                "STO-D005",
                f"the value is nested over {self.bounds.depth} deep or contains itself",
            )
        write = _WRITERS.get(type(node))
        if write is None:
            raise UsageError(
                "STO-D001", f"values of type {type(node).__name__} do not travel"
            )
        write(self, node, depth)

    def _write_integer(self, node: int, _: int) -> None:
        if node in INT64:
            self.put(b"i" + I64.pack(node))
            return
        size = (node + (node < 0)).bit_length() // 8 + 1
        self.put(b"I" + U32.pack(size), node.to_bytes(size, "little", signed=True))

    def _write_text(self, node: str, _: int) -> None:
        try:
            data = node.encode()
        except UnicodeEncodeError:
            raise UsageError(
                "STO-D001", "text with lone surrogates does not travel"
            ) from None
        self.put(b"s" + U32.pack(len(data)), data)

    def _write_list(self, node: list[Node], depth: int) -> None:
        if is_float_list(node):
            self.put(b"L" + U32.pack(len(node)), array("d", node).tobytes())
        elif is_int64_list(node):
            self.put(b"P" + U32.pack(len(node)), array("q", node).tobytes())
        else:
            self.write_sequence(b"l", node, depth)

    def write_sequence(
        self, tag: bytes, items: list[Node] | tuple[Node, ...], depth: int
    ) -> None:
        """Append a count and each item, at nesting `depth`."""
        self.put(tag + U32.pack(len(items)))
        for item in items:
            self.write_node(item, depth + 1)

    def _write_dict(self, node: dict[Node, Node], depth: int) -> None:
        self.put(b"d" + U32.pack(len(node)))
        for key, value in node.items():
            check_key(key, UsageError)
            self.write_node(key, depth + 1)
            self.write_node(value, depth + 1)

    def _write_set(self, node: set[Node] | frozenset[Node], depth: int) -> None:
        encoded = []
        for item in node:
            check_key(item, UsageError)
            inner = Writer(self.bounds)
            inner.left = self.left
            inner.write_node(item, depth + 1)
            self.left = inner.left
            encoded.append(b"".join(inner.chunks[1:]))
        tag = b"e" if type(node) is set else b"z"
        self.put(tag + U32.pack(len(encoded)), *sorted(encoded))

    def _write_datetime(self, node: datetime, _: int) -> None:
        zone = node.tzinfo
        if zone is not None and type(zone) is not timezone:
            raise UsageError(
                "STO-D001",
                "datetimes with a named time zone do not travel",
                hint="convert with .astimezone(datetime.timezone.utc)",
            )
        offset = node.utcoffset()
        wall = (node.replace(tzinfo=None) - YEAR_ONE) // MICROSECOND
        self.put(
            b"D"
            + DATETIME.pack(
                wall,
                node.fold,
                offset is not None,
                0 if offset is None else offset // MICROSECOND,
            )
        )

    def _write_array(self, node: Ndarray | Tensor, _: int) -> None:
        data = memoryview(node.data).cast("B") if len(node.data) else memoryview(b"")
        _check(check_array, node.dtype, node.shape, len(data))
        extents = b"".join(map(U64.pack, node.shape))
        head = _short(node.dtype) + bytes([len(node.shape)]) + extents
        self.put((b"a" if type(node) is Ndarray else b"x") + head)
        self.put(bytes(-self.at % ALIGNMENT), data)

    def _write_scalar(self, node: NumpyScalar, _: int) -> None:
        _check(check_array, node.dtype, (), len(node.data))
        self.put(b"n" + _short(node.dtype), bytes(node.data))

    def _write_instance(self, node: Instance, depth: int) -> None:
        _check(check_name, node.class_name)
        self.put(b"O" + _short(node.class_name))
        self.write_node(node.base, depth + 1)
        self.put(U32.pack(len(node.state)))
        for name, value in node.state.items():
            _check(check_name, name)
            self.put(_short(name))
            self.write_node(value, depth + 1)

    def _write_reference(self, node: FunctionRef | ClassRef, _: int) -> None:
        _check(check_name, node.name)
        self.put((b"R" if type(node) is FunctionRef else b"C") + _short(node.name))

    def _write_blob(self, node: BlobRef, _: int) -> None:
        if not 0 <= node.index < BOUNDS.blobs_per_task:
            raise UsageError("STO-D001", "a blob reference is out of range")
        self.put(b"B" + U32.pack(node.index))


_WRITERS: dict[type, Callable[[Writer, Node, int], None]] = {
    type(None): lambda writer, _, __: writer.put(b"N"),
    bool: lambda writer, node, _: writer.put(b"T" if node else b"F"),
    int: Writer._write_integer,
    float: lambda writer, node, _: writer.put(b"f" + F64.pack(node)),
    complex: lambda writer, z, _: writer.put(b"c" + C128.pack(z.real, z.imag)),
    str: Writer._write_text,
    bytes: lambda writer, node, _: writer.put(b"b" + U64.pack(len(node)), node),
    list: Writer._write_list,
    tuple: lambda writer, node, depth: writer.write_sequence(b"t", node, depth),
    dict: Writer._write_dict,
    set: Writer._write_set,
    frozenset: Writer._write_set,
    datetime: Writer._write_datetime,
    Ndarray: Writer._write_array,
    Tensor: Writer._write_array,
    NumpyScalar: Writer._write_scalar,
    FunctionRef: Writer._write_reference,
    ClassRef: Writer._write_reference,
    Instance: Writer._write_instance,
    BlobRef: Writer._write_blob,
}


def _short(text: str) -> bytes:
    data = text.encode()
    if len(data) > 255:  # noqa: PLR2004 - one length byte
        raise UsageError("STO-D001", f"the name {text[:40]!r} is too long to travel")
    return bytes([len(data)]) + data


def _check(check: Callable[..., None], *arguments: object) -> None:
    """Run a decoder's check while encoding: the fault is then the caller's."""
    try:
        check(*arguments)
    except TrustError as error:
        raise UsageError("STO-D001", error.message, hint=error.hint) from None


def encode(node: Node, bounds: SkeletonBounds = DEFAULT_BOUNDS) -> bytes:
    """Return the one encoding of `node`; a value that cannot travel is ``STO-D001``."""
    return b"".join(encode_chunks(node, bounds))


def encode_chunks(
    node: Node, bounds: SkeletonBounds = DEFAULT_BOUNDS
) -> list[bytes | memoryview]:
    """Return the encoding as chunks whose array data are not copied."""
    writer = Writer(bounds)
    writer.write_node(node, 0)
    return writer.chunks


def decode(data: Buffer, bounds: SkeletonBounds = DEFAULT_BOUNDS) -> Node:
    """Return the value in `data` (untrusted); arrays are views into it.

    Raises:
        TrustError: ``STO-D002`` malformed or not canonical, ``STO-D005`` too large or too
            deep; ``STO-D002`` too for a reference where `bounds` allow data only.
    """
    if len(data) > bounds.size:
        raise TrustError("STO-D005", f"an encoded value is over {bounds.size} bytes")
    view = memoryview(data)
    if bytes(view[: len(MAGIC)]) != MAGIC:
        raise TrustError("STO-D002", "not an encoded value of this version")
    reader = Reader(view, bounds)
    node = reader.read_node(0)
    if reader.at != len(view):
        raise TrustError("STO-D002", "bytes follow the encoded value")
    return node


_NUMBERS = (bool, int, float, complex)


def nodes_equal(left: Node, right: Node) -> bool:
    """Return whether two decoded values are the same result; in time linear in them."""
    try:
        return encode(left) == encode(right) or _same(left, right)
    except UsageError:
        return False


def _same(left: Node, right: Node) -> bool:
    """Compare part by part; only parts without parts are ever encoded again."""
    if isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS):
        return _numbers_equal(left, right)
    if type(left) is not type(right):
        return False
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(
            _same(value, right[key]) for key, value in left.items()
        )
    if isinstance(left, (str, bytes, set, frozenset, datetime)):
        return bool(left == right)
    return encode(left) == encode(right)


def _numbers_equal(left: complex, right: complex) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    return left == right or encode(left) == encode(right)  # complex with NaN parts

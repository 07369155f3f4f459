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
encodes to the same bytes again. It needs neither numpy nor torch.
"""

from __future__ import annotations

from stoilo.core.codec.nodes import Node
from stoilo.core.codec.reader import Reader
from stoilo.core.codec.wire import DATA_BOUNDS, DEFAULT_BOUNDS, MAGIC, SkeletonBounds
from stoilo.core.codec.writer import Writer
from stoilo.core.digests import Buffer
from stoilo.core.errors import TrustError

__all__ = [
    "DATA_BOUNDS",
    "MAGIC",
    "SkeletonBounds",
    "decode",
    "encode",
    "encode_chunks",
]


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
        TrustError: ``STO-D002`` malformed, ``STO-D003`` arrays, ``STO-D004`` too deep,
            ``STO-D005`` too large, ``STO-D006`` not canonical, ``STO-D007`` names,
            ``STO-D008`` a reference where `bounds` allow data only.
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

"""The wire form's constants and the rules that writer and reader share."""

from __future__ import annotations

import struct
from datetime import datetime, timedelta

import msgspec

from stoilo.core.codec.nodes import Node
from stoilo.core.errors import TrustError, UsageError
from stoilo.core.limits import BOUNDS


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
    """How much one value may hold: nesting, elements, encoded bytes; what may stand in it.

    Attributes:
        references: whether it may name functions, classes and blobs, as arguments do.
    """

    depth: int = BOUNDS.value_depth
    nodes: int = BOUNDS.value_nodes
    size: int = BOUNDS.value_bytes
    references: bool = True


DEFAULT_BOUNDS = SkeletonBounds()
DATA_BOUNDS = SkeletonBounds(references=False)
"""For results: data, and nothing that the receiver would have to look up."""


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

"""What the skeleton codec carries: nodes, forms of library objects, bounds of the wire.

A *node* is what the skeleton codec carries. None, bool, int, float, complex, str, bytes,
list, tuple, dict, set, frozenset and datetime stand for themselves; the records below
stand for the rest. No node is ever an object of a library or of a researcher's class.
"""

from __future__ import annotations

import math
import re
import struct
from datetime import datetime, timedelta
from typing import Any

import msgspec

from stoilo.core.digests import Buffer
from stoilo.core.errors import TrustError, UsageError
from stoilo.core.limits import BOUNDS

Node = Any  # Any value the codec carries; see the module docstring

MAX_DIMENSIONS = 32
MAX_STRIDE = 2**63 - 1  # bytes; numpy and torch multiply extents in 64 bits
MAX_NAME_PARTS = 8

_FIXED_BYTES = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}
_SIZED = r"(?P<kind>[SU])(?P<chars>[1-9][0-9]{0,5})"
_DATED = r"(datetime64|timedelta64)\[(Y|M|W|D|h|m|s|ms|us|ns)\]"


class Ndarray(msgspec.Struct, frozen=True):
    """A numpy array: little-endian, C order."""

    dtype: str  # `float64`, `int32`, `bool`, `S12`, `U7`, `datetime64[ns]` …
    shape: tuple[int, ...]  # extents; `()` is a zero-dimensional array
    data: Buffer  # exactly `prod(shape) * itemsize` bytes; a view when decoded


class NumpyScalar(msgspec.Struct, frozen=True):
    """A numpy scalar: one little-endian item of `dtype`."""

    dtype: str
    data: Buffer


class Tensor(msgspec.Struct, frozen=True):
    """A torch tensor on the CPU: little-endian, contiguous."""

    dtype: str
    shape: tuple[int, ...]
    data: Buffer


class FunctionRef(msgspec.Struct, frozen=True):
    """A function of the task module, by (dotted) name."""

    name: str


class ClassRef(msgspec.Struct, frozen=True):
    """A class of the task module, by (dotted) name."""

    name: str


class Instance(msgspec.Struct, frozen=True):
    """An instance of a class of the task module: its name and attribute state."""

    class_name: str  # (dotted) name in the task module
    # attribute name → node
    state: dict[str, Node] = msgspec.field(default_factory=dict)
    # the builtin part when the class extends list, dict, str …, else None
    base: Node = None


class BlobRef(msgspec.Struct, frozen=True):
    """The value in the index-th blob of the statement, itself an encoded skeleton."""

    index: int


def item_bytes(dtype: str) -> int:
    """Return the size of one item of `dtype`, B; unknown dtypes raise ``STO-D002``."""
    if dtype in _FIXED_BYTES:
        return _FIXED_BYTES[dtype]
    if match := re.fullmatch(_SIZED, dtype):
        return int(match["chars"]) * (4 if match["kind"] == "U" else 1)
    if re.fullmatch(_DATED, dtype):
        return 8
    raise TrustError("STO-D002", f"arrays of dtype {dtype[:32]!r} do not travel")


def check_array(dtype: str, shape: tuple[int, ...], size: int) -> None:
    """Raise ``STO-D002`` unless `size` bytes are exactly an array of that shape.

    Empty arrays, too, have extents that libraries can multiply.
    """
    if len(shape) > MAX_DIMENSIONS or any(extent < 0 for extent in shape):
        raise TrustError("STO-D002", "an array's shape is malformed")
    if math.prod(filter(None, shape)) * item_bytes(dtype) > MAX_STRIDE:
        raise TrustError("STO-D002", "an array's extents are beyond any memory")
    if math.prod(shape) * item_bytes(dtype) != size:
        raise TrustError("STO-D002", "an array's size does not fit its shape and dtype")


def check_name(name: str) -> None:
    """Raise ``STO-D002`` unless `name` is a bounded, dotted identifier."""
    parts = name.split(".")
    if (
        len(name) > BOUNDS.name_chars
        or len(parts) > MAX_NAME_PARTS
        or not all(part.isidentifier() for part in parts)
    ):
        raise TrustError("STO-D002", "a reference's name is not an identifier")


# Objects of libraries travel as arguments in these forms: an `Instance` whose class name is
# one of them instead of a class of the task module. A label is a number that a later SHARED
# repeats, so that tied weights stay tied and an optimiser keeps hold of the model beside it.
#
#     name             state                                            base
#     PARAMETER        data: Tensor, requires_grad: bool                label
#     TENSOR           data: Tensor, requires_grad: true                label
#     SHARED           -                                                label
#     MODULE           training, parameters, buffers, modules: tables;  label
#                      temporary: list of names of unsaved buffers
#     OPTIMIZER        defaults: table, groups: list of tables,         label
#                      state: list of (parameter, table)
#     DTYPE, DEVICE    -                                                its text
#     SIZE             -                                                tuple of extents
#     ORDERED          -                                                dict
#
# A module or an optimiser itself is an Instance of its class (of the task's source, or a
# dotted library class) with its plain attributes as state and one of MODULE and OPTIMIZER
# as base. Hooks, gradients and graphs do not travel: they would carry code.
PARAMETER = "torch.nn.Parameter"
TENSOR = "torch.Tensor"
SHARED = "torch.shared"
MODULE = "torch.nn.Module"
OPTIMIZER = "torch.optim.Optimizer"
DTYPE = "torch.dtype"
DEVICE = "torch.device"
SIZE = "torch.Size"
ORDERED = "collections.OrderedDict"

# All of the above
FORMS = frozenset(
    {PARAMETER, TENSOR, SHARED, MODULE, OPTIMIZER, DTYPE, DEVICE, SIZE, ORDERED}
)

# Private attributes of library modules that travel, each checked when it arrives
LIBRARY_STATE = frozenset(
    {
        "_reversed_padding_repeated_twice",  # convolutions: integers
        "_qkv_same_embed_dim",  # MultiheadAttention: a flag
        "_size",  # ParameterList: an integer
        "_keys",  # ParameterDict: names of its entries
        "_flat_weights_names",  # recurrent layers: names of their parameters
        "_all_weights",  # the same, by layer
    }
)

# Library classes that only instances show (here: in MultiheadAttention)
UNNAMED = frozenset({"torch.nn.modules.linear.NonDynamicallyQuantizableLinear"})


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

"""What the skeleton codec carries: nodes, forms of library objects, and values as nodes.

A *node* is what the skeleton codec carries. None, bool, int, float, complex, str, bytes,
list, tuple, dict, set, frozenset and datetime stand for themselves; the records below
stand for the rest. No node is ever an object of a library or of a researcher's class.

Between them and Python values go the client, which sends, and the jail, which binds.
`to_node` takes exact builtin types, numpy arrays and scalars and dense torch tensors;
everything else goes through `refs`, or is refused. Without `refs` (results) an
``OrderedDict`` becomes a dict, a ``torch.Size`` a tuple, a tensor that requires gradients
its data: what libraries return as a matter of course. `from_node` needs numpy or torch
only when a node does. Neither looks at attributes of, nor calls anything on, foreign
objects.
"""

from __future__ import annotations

import importlib
import math
import re
import sys
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

import msgspec

from stoilo.core import libraries
from stoilo.core.digests import Buffer
from stoilo.core.errors import TrustError, UsageError
from stoilo.core.types import BOUNDS

Node = Any  # Any value the codec carries; see the module docstring

MAX_DIMENSIONS = 32
MAX_STRIDE = 2**63 - 1  # bytes; numpy and torch multiply extents in 64 bits
MAX_NAME_PARTS = 8

_FIXED_BYTES = {
    **dict.fromkeys(("bool", "int8", "uint8"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 8),
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
        "_norm_layer",  # torchvision's ResNet: what makes its normalising layers
        "_is_cn",  # its inverted residuals: a flag
        "_stage_out_channels",  # its ShuffleNet: integers
    }
)

# Library classes that only instances show (here: in MultiheadAttention)
UNNAMED = frozenset({"torch.nn.modules.linear.NonDynamicallyQuantizableLinear"})


# Values to nodes, and back ------------------------------------------------------------

_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, datetime})
_REFERENCES = frozenset({FunctionRef, ClassRef, Instance, BlobRef})


class References(Protocol):
    """How one side names what is not plain data: functions, classes, instances."""

    def to_ref(self, value: object, convert: Callable[[object], Node]) -> Node:
        """Return a reference node; `convert` turns inner values; refuse by raising."""

    def from_ref(self, node: Node, convert: Callable[[Node], object]) -> object:
        """Return the object a reference node names; `convert` binds inner nodes."""


class _NoReferences:
    """Plain data only."""

    def to_ref(self, value: object, convert: Callable[[object], Node]) -> Node:
        del convert
        message = f"values of type {type(value).__name__} do not travel"
        raise UsageError("STO-D001", message, hint=_advice_for(value))

    def from_ref(self, node: Node, convert: Callable[[Node], object]) -> object:
        del convert
        raise TrustError("STO-D002", f"a {type(node).__name__} cannot be resolved here")


def _advice_for(value: object) -> str:
    """Return what to return instead of a module or an optimiser."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.nn.Module | torch.optim.Optimizer):
        return ""
    return "return its state_dict(), and load_state_dict() that at home"


def to_node(
    value: object,  # what travels
    # what classes and functions in it become; None in a result
    refs: References | None = None,
    # classes whose instances become a dict in a result
    dicts: frozenset[type] = frozenset({OrderedDict}),
) -> Node:
    """Return the node of `value`.

    Raises:
        UsageError: ``STO-D001`` for a type that does not travel, ``STO-D005`` too deep.
    """
    plain = refs is None
    refs = refs or _NoReferences()

    def convert(item: object, depth: int) -> Node:
        if depth > BOUNDS.value_depth:
            raise UsageError(
                "STO-D005", "the value is nested too deep or contains itself"
            )
        kind = type(item)
        if kind in _PLAIN:
            return item
        if kind in _CONTAINERS:
            return _CONTAINERS[kind](item, lambda inner: convert(inner, depth + 1))
        if (node := _library_node(item, plain=plain)) is not None:
            return node
        if plain and kind in dicts:
            return _convert_dict(item, lambda inner: convert(inner, depth + 1))
        if name := libraries.listed_name(item):
            codec = libraries.codec_of(name)
            return codec.to_node(item, name, lambda inner: convert(inner, depth + 1))
        return refs.to_ref(item, lambda inner: convert(inner, depth + 1))

    return convert(value, 0)


def from_node(node: Node, refs: References | None = None) -> Any:  # noqa: ANN401
    """Return the Python value of `node`; arrays are fresh and writable."""
    refs = refs or _NoReferences()

    def convert(item: Node) -> object:
        kind = type(item)
        if kind in _PLAIN:
            return item
        if kind in _CONTAINERS:
            return _CONTAINERS[kind](item, convert)
        if kind is Instance and libraries.is_listed(item.class_name):
            return libraries.codec_of(item.class_name).from_node(item, convert)
        if kind in _REFERENCES:
            return refs.from_ref(item, convert)
        return _LIBRARY_VALUES[kind](item)

    return convert(node)


def _convert_dict(items: Any, convert: Callable[[Any], Any]) -> dict[Any, Any]:  # noqa: ANN401
    return {convert(key): convert(value) for key, value in items.items()}


_CONTAINERS: dict[type, Callable[[Any, Callable[[Any], Any]], Any]] = {
    list: lambda items, convert: [convert(item) for item in items],
    tuple: lambda items, convert: tuple([convert(item) for item in items]),
    set: lambda items, convert: {convert(item) for item in items},
    frozenset: lambda items, convert: frozenset([convert(item) for item in items]),
    dict: _convert_dict,
}


def _library_node(value: object, *, plain: bool) -> Node | None:
    """Return the node of a numpy or torch value; None when it is neither.

    A value can only be one of them when its library is loaded, so nothing is imported.
    Unless `plain`, what is more than its data (a parameter, a shape) is left to `refs`.
    """
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        if type(value) is numpy.ndarray:
            return _numpy_node(value, numpy)
        if isinstance(value, numpy.generic):
            return _numpy_scalar(value, numpy)
    torch = sys.modules.get("torch")
    if torch is not None:
        return _torch_value(value, torch, plain=plain)
    return None


def _torch_value(value: Any, torch: Any, *, plain: bool) -> Node | None:  # noqa: ANN401
    if type(value) is torch.Tensor and (plain or not value.requires_grad):
        return _torch_node(value, torch)
    if plain and type(value) is torch.nn.Parameter:
        return _torch_node(value, torch)
    return tuple(value) if plain and type(value) is torch.Size else None


def _dtype_name(dtype: Any) -> str:  # noqa: ANN401
    """Return our name of a numpy dtype, byte order aside; `item_bytes` checks it."""
    if dtype.kind in "SU":
        return f"{dtype.kind}{dtype.itemsize // (4 if dtype.kind == 'U' else 1)}"
    return str(dtype.newbyteorder("=").name) if dtype.names is None else str(dtype)


def _numpy_node(value: Any, numpy: Any) -> Ndarray:  # noqa: ANN401
    if value.dtype.hasobject or value.dtype.names is not None:
        raise UsageError(
            "STO-D001",
            f"arrays of dtype {value.dtype} do not travel",
            hint="use a numeric, boolean, datetime64 or fixed-length text dtype",
        )
    name = _dtype_name(value.dtype)
    contiguous = numpy.ascontiguousarray(value, dtype=value.dtype.newbyteorder("<"))
    data = memoryview(contiguous.reshape(-1).view(numpy.uint8)) if value.size else b""
    return Ndarray(name, tuple(value.shape), data)


def _numpy_scalar(value: Any, numpy: Any) -> NumpyScalar:  # noqa: ANN401
    node = _numpy_node(numpy.asarray(value), numpy)
    return NumpyScalar(node.dtype, bytes(node.data))


def _torch_node(value: Any, torch: Any) -> Tensor:  # noqa: ANN401
    name = str(value.dtype).removeprefix("torch.")
    if value.layout is not torch.strided or value.is_meta or value.is_quantized:
        raise UsageError(
            "STO-D001",
            f"only dense tensors travel, and this one is {value.layout} "
            f"on device {value.device}",
            hint="send it as .to_dense(), or its indices and values",
        )
    dense = value.detach().to("cpu").resolve_conj().resolve_neg()
    flat = dense.contiguous().reshape(-1)
    data = memoryview(flat.view(torch.uint8).numpy()) if flat.numel() else b""
    return Tensor(name, tuple(value.shape), data)


def _library(name: str) -> Any:  # noqa: ANN401
    """Import the library that a value needs, where it is installed (never in a jail)."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise TrustError(
            "STO-D011",
            f"an array needs {name}, which is not here",
            hint=f"install {name}; a task: ask for a level that has it",
        ) from None


def _from_ndarray(node: Ndarray) -> object:
    np = _library("numpy")
    flat = np.frombuffer(node.data, dtype=np.dtype(node.dtype).newbyteorder("<"))
    native = flat.astype(flat.dtype.newbyteorder("="), copy=True)
    return native.reshape(node.shape)


def _from_scalar(node: NumpyScalar) -> object:
    array: Any = _from_ndarray(Ndarray(node.dtype, (1,), node.data))
    return array[0]


def _from_tensor(node: Tensor) -> object:
    torch = _library("torch")
    dtype = getattr(torch, node.dtype)
    if not len(node.data):
        return torch.empty(node.shape, dtype=dtype)
    return torch.frombuffer(bytearray(node.data), dtype=dtype).reshape(node.shape)


_LIBRARY_VALUES: dict[type, Callable[[Any], object]] = {
    Ndarray: _from_ndarray,
    NumpyScalar: _from_scalar,
    Tensor: _from_tensor,
}

"""Values as JSON, in the forms of the command line (design §7).

Plain where JSON is exact, else an object with one key: ``$tuple``, ``$set``,
``$frozenset``, ``$bytes`` (base64), ``$complex`` [re, im], ``$float`` "nan"|"inf"|"-inf",
``$int`` decimal beyond 2^53, ``$datetime`` (ISO), ``$ndarray``|``$tensor`` {dtype, shape,
data: base64 little-endian or nested lists}, ``$dict`` [[k, v] ...], and of described libraries
``$library`` {type: dotted class name, state: an object of its parts}.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import struct
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from stoilo.core.codec.nodes import (
    Instance,
    Ndarray,
    Node,
    NumpyScalar,
    Tensor,
    check_array,
    item_bytes,
)
from stoilo.core.codec.skeleton import encode
from stoilo.core.errors import StoiloError, UsageError
from stoilo.core.libraries import is_listed

EXACT_INT = 2**53
MAX_INT_DIGITS = 4000
MAX_JSON_BYTES = 64 * 1024 * 1024
_PACKING = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float16": "e",
    "float32": "f",
    "float64": "d",
}


def render_json_value(node: Node) -> Any:  # noqa: ANN401
    """Return `node` as something `json.dumps` writes exactly; no NaN tokens.

    Raises:
        UsageError: ``STO-D009`` for an integer of over 4,000 digits or a reference.
    """
    kind = type(node)
    if node is None or kind in {bool, str}:
        return node
    if kind not in _RENDERERS:
        raise UsageError("STO-D009", f"a {kind.__name__} has no JSON form")
    return _RENDERERS[kind](node)


def parse_json_value(text: bytes | str) -> Node:
    """Return the value in `text` (untrusted JSON) as a node, checked by the codec.

    Raises:
        UsageError: ``STO-D009`` for bad JSON, NaN tokens, duplicate keys, unknown forms.
    """
    if len(text) > MAX_JSON_BYTES:
        raise UsageError("STO-D009", f"JSON arguments are over {MAX_JSON_BYTES} bytes")
    try:
        tree = json.loads(
            text, object_pairs_hook=_Pairs, parse_constant=_refuse_constant
        )
        node = _parse(tree)
        encode(node)
    except (ValueError, RecursionError) as error:
        raise UsageError("STO-D009", f"not a JSON value: {str(error)[:120]}") from None
    except StoiloError as error:
        raise UsageError(error.code, error.message, hint=error.hint) from None
    return node


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as its pairs, so that duplicate keys are seen."""


def _refuse_constant(token: str) -> Any:  # noqa: ANN401
    raise UsageError(
        "STO-D009", f"the token {token} is not JSON", hint='write {"$float": "nan"}'
    )


def _render_int(value: int) -> Any:  # noqa: ANN401
    if abs(value) <= EXACT_INT:
        return value
    if value.bit_length() > MAX_INT_DIGITS * math.log2(10):
        raise UsageError("STO-D009", f"an integer has over {MAX_INT_DIGITS} digits")
    return {"$int": str(value)}


def _render_float(value: float) -> Any:  # noqa: ANN401
    return value if math.isfinite(value) else {"$float": repr(value)}


def _render_dict(table: dict[Node, Node]) -> Any:  # noqa: ANN401
    plain = all(type(key) is str and not key.startswith("$") for key in table)
    if plain:
        return {key: render_json_value(value) for key, value in table.items()}
    pairs = [
        [render_json_value(key), render_json_value(value)]
        for key, value in table.items()
    ]
    return {"$dict": pairs}


def _base64(data: bytes | bytearray | memoryview) -> str:
    return base64.b64encode(data).decode("ascii")


def _render_array(node: Ndarray | Tensor) -> Any:  # noqa: ANN401
    form = "$ndarray" if type(node) is Ndarray else "$tensor"
    shape = list(node.shape)
    return {form: {"dtype": node.dtype, "shape": shape, "data": _base64(node.data)}}


def _render_library(node: Instance) -> Any:  # noqa: ANN401
    if node.base is not None or not is_listed(node.class_name):
        raise UsageError("STO-D009", f"a {node.class_name[:64]} has no JSON form")
    state = {name: render_json_value(part) for name, part in node.state.items()}
    return {"$library": {"type": node.class_name, "state": state}}


def _items(form: str) -> Callable[[Any], Any]:
    return lambda items: {form: [render_json_value(item) for item in items]}


def _sorted_items(form: str) -> Callable[[Any], Any]:
    return lambda items: {
        form: [render_json_value(i) for i in sorted(items, key=encode)]
    }


_RENDERERS: dict[type, Callable[[Any], Any]] = {
    int: _render_int,
    float: _render_float,
    complex: lambda z: {"$complex": [_render_float(z.real), _render_float(z.imag)]},
    bytes: lambda data: {"$bytes": _base64(data)},
    list: lambda items: [render_json_value(item) for item in items],
    tuple: _items("$tuple"),
    set: _sorted_items("$set"),
    frozenset: _sorted_items("$frozenset"),
    dict: _render_dict,
    datetime: lambda moment: {"$datetime": moment.isoformat()},
    Ndarray: _render_array,
    Tensor: _render_array,
    Instance: _render_library,
    NumpyScalar: lambda item: _render_array(Ndarray(item.dtype, (), item.data)),
}


def _parse(tree: Any) -> Node:  # noqa: ANN401
    if type(tree) is list:
        return [_parse(item) for item in tree]
    if type(tree) is not _Pairs:
        return tree
    if len(tree) == 1 and tree[0][0].startswith("$"):
        form, body = tree[0]
        if form not in _PARSERS:
            raise UsageError("STO-D009", f"unknown form {form[:20]!r}")
        return _PARSERS[form](body)
    pairs = [(key, _parse(value)) for key, value in tree]
    return _build(dict, pairs, "a JSON object")


def _expect(body: Any, kind: type, form: str) -> Any:  # noqa: ANN401
    if type(body) is not kind:
        raise UsageError("STO-D009", f"{form} takes a {kind.__name__}")
    return body


def _parse_int(body: Any) -> int:  # noqa: ANN401
    text = _expect(body, str, "$int")
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= MAX_INT_DIGITS):
        raise UsageError(
            "STO-D009", f"$int takes up to {MAX_INT_DIGITS} decimal digits"
        )
    return int(text)


def _parse_float(body: Any) -> float:  # noqa: ANN401
    if body not in ("nan", "inf", "-inf"):
        raise UsageError("STO-D009", '$float takes "nan", "inf" or "-inf"')
    return float(body)


def _parse_number(body: Any) -> float:  # noqa: ANN401
    value = _parse(body)
    if type(value) not in {int, float}:
        raise UsageError("STO-D009", "$complex takes two numbers")
    return float(value)


def _parse_complex(body: Any) -> complex:  # noqa: ANN401
    parts = _expect(body, list, "$complex")
    if len(parts) != 2:  # noqa: PLR2004 - real and imaginary
        raise UsageError("STO-D009", "$complex takes two numbers")
    return complex(_parse_number(parts[0]), _parse_number(parts[1]))


def _parse_bytes(body: Any, form: str = "$bytes") -> bytes:  # noqa: ANN401
    try:
        return base64.b64decode(_expect(body, str, form), validate=True)
    except binascii.Error:
        raise UsageError("STO-D009", f"{form} is not base64") from None


def _build(kind: Callable[[Any], Any], items: list[Any], form: str) -> Any:  # noqa: ANN401
    """Return the table or set of `items`, none of which may be there twice."""
    try:
        built = kind(items)
    except TypeError:
        raise UsageError(
            "STO-D009", f"{form} holds something that cannot be hashed"
        ) from None
    if len(built) != len(items):
        raise UsageError("STO-D009", f"{form} has the same key or element twice")
    return built


def _parse_set(kind: type, form: str) -> Callable[[Any], Node]:
    return lambda body: _build(kind, list(map(_parse, _expect(body, list, form))), form)


def _parse_pairs(body: Any) -> Node:  # noqa: ANN401
    pairs = [_parse(pair) for pair in _expect(body, list, "$dict")]
    if not all(type(pair) is list and len(pair) == 2 for pair in pairs):  # noqa: PLR2004
        raise UsageError("STO-D009", "$dict takes [key, value] pairs")
    return _build(dict, pairs, "$dict")


def _parse_datetime(body: Any) -> datetime:  # noqa: ANN401
    return datetime.fromisoformat(_expect(body, str, "$datetime"))


def _flatten(body: Any, shape: tuple[int, ...]) -> Iterator[Any]:  # noqa: ANN401
    if not shape:
        yield _parse(body)
        return
    if type(body) is not list or len(body) != shape[0]:
        raise UsageError("STO-D009", "nested lists do not fit the array's shape")
    for item in body:
        yield from _flatten(item, shape[1:])


def _pack(body: Any, dtype: str, shape: tuple[int, ...]) -> bytes:  # noqa: ANN401
    if dtype not in _PACKING:
        raise UsageError("STO-D009", f"dtype {dtype!r} takes base64 data, not lists")
    flat = list(_flatten(body, shape))
    if dtype == "bool" and not all(type(item) is bool for item in flat):
        raise UsageError("STO-D009", "a boolean array takes true and false")
    try:
        return struct.pack(f"<{len(flat)}{_PACKING[dtype]}", *flat)
    except (struct.error, OverflowError, TypeError):
        raise UsageError("STO-D009", f"a number does not fit dtype {dtype}") from None


def _parse_array(body: Any) -> tuple[str, tuple[int, ...], bytes]:  # noqa: ANN401
    parts = dict(_expect(body, _Pairs, "an array"))
    if set(parts) != {"dtype", "shape", "data"} or len(body) != len(parts):
        raise UsageError("STO-D009", "an array takes dtype, shape and data")
    dtype = _expect(parts["dtype"], str, "dtype")
    shape = tuple(_expect(parts["shape"], list, "shape"))
    if not all(type(extent) is int and extent >= 0 for extent in shape):
        raise UsageError("STO-D009", "a shape takes whole numbers")
    item_bytes(dtype)
    raw = parts["data"]
    data = _parse_bytes(raw, "data") if type(raw) is str else _pack(raw, dtype, shape)
    check_array(dtype, shape, len(data))
    return dtype, shape, data


def _parse_library(body: Any) -> Instance:  # noqa: ANN401
    parts = dict(_expect(body, _Pairs, "$library"))
    if set(parts) != {"type", "state"} or not is_listed(str(parts["type"])):
        raise UsageError(
            "STO-D009", "$library takes the type of a library, and its state"
        )
    state = _expect(parts["state"], _Pairs, "the state of a library's value")
    return Instance(parts["type"], {name: _parse(part) for name, part in state})


_PARSERS: dict[str, Callable[[Any], Node]] = {
    "$tuple": lambda body: tuple(map(_parse, _expect(body, list, "$tuple"))),
    "$set": _parse_set(set, "$set"),
    "$frozenset": _parse_set(frozenset, "$frozenset"),
    "$bytes": _parse_bytes,
    "$complex": _parse_complex,
    "$float": _parse_float,
    "$int": _parse_int,
    "$datetime": _parse_datetime,
    "$ndarray": lambda body: Ndarray(*_parse_array(body)),
    "$tensor": lambda body: Tensor(*_parse_array(body)),
    "$dict": _parse_pairs,
    "$library": _parse_library,
}

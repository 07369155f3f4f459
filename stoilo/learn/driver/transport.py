"""How arrays travel: what a task is told to answer as, and what its answer's bytes mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal, TypeAlias, cast, get_args

import numpy as np

from stoilo.core.errors import TrustError, UsageError
from stoilo.learn.core.orders import Order
from stoilo.learn.core.states import Plain
from stoilo.learn.core.tensors import Array, Form
from stoilo.learn.driver.codecs import (
    Compressed,
    Half,
    Quantised,
    Raw,
    Ternary,
    Transport,
)
from stoilo.learn.kernels.encoding import unpack

TransportName: TypeAlias = Literal[
    "raw", "compressed", "ternary", "float16", "bfloat16", "int8"
]
_KEY = "transport"
_EXACT = ("compressed", "raw")  # codecs that lose nothing


def as_transport(wanted: Transport | TransportName) -> Transport:
    """Return the codec of that name with its usual settings, or the codec itself.

    Raises:
        UsageError: ``STO-T040`` for another name.
    """
    if not isinstance(wanted, str):
        return wanted
    known: dict[str, Transport] = {
        "raw": Raw(),
        "compressed": Compressed(),
        "ternary": Ternary(),
        "float16": Half("float16"),
        "bfloat16": Half(),
        "int8": Quantised(),
    }
    if wanted in known:
        return known[wanted]
    raise UsageError(
        "STO-T040",
        f"arrays cannot travel as {wanted!r}",
        hint=f"one of {', '.join(get_args(TransportName))}, or an object of their classes",
    )


def ask(order: Order, transport: Transport) -> Order:
    """Return the order with what its task must be told to encode its answer."""
    told = None if order.kernel == "evaluate" else transport.ask(order)
    if told is None:
        return order
    # In the settings it is part of the job's key and of checkpoints: an answer is decoded
    # as it was asked for, also after a restart with other options.
    return replace(order, settings={**order.settings, _KEY: dict(told)})


def asked(order: Order) -> dict[str, Plain] | None:
    """Return what the bytes of the order's answer mean: codec and constants, no seed."""
    told = order.settings.get(_KEY)
    if told is None:
        return None
    known = cast("dict[str, Plain]", told)  # ours: `ask` wrote it
    return {name: value for name, value in known.items() if name != "seed"}


def is_near_in_copies(told: Mapping[str, Plain] | None) -> bool:
    """Whether copies that differ in their last bits still arrive as nearly the same.

    A draw, a choice of places and a factor turn the last bit of one processor into more.
    """
    if told is None or told["codec"] != "layers":
        return told is None or told["codec"] in (*_EXACT, "half")
    of = cast("dict[str, dict[str, Plain]]", told["of"])  # ours: `PerLayer.ask` made it
    return all(is_near_in_copies(one) for one in of.values())


def receive(raw: object, order: Order, forms: Mapping[str, Form]) -> object:
    """Return an answer (hostile, unchecked) with its arrays decoded.

    Names that are missing stay so, and everything else is as it came: the acceptance
    check comes after this one.

    Raises:
        TrustError: ``STO-T010`` for arrays that are not encoded as was asked for.
    """
    told = asked(order)
    if told is None or not isinstance(raw, dict):
        return raw
    plain = {name: (form.dtype, form.shape) for name, form in forms.items()}
    read: Callable[..., dict[str, Array]] = unpack  # untyped: it travels as source
    try:
        found = read(told, raw.get("tensors"), plain)
    except ValueError as fault:
        raise TrustError(
            "STO-T010", f"a volunteer's answer is not used: {fault}"
        ) from None
    if told["codec"] != "compressed" and order.gives_parameters:
        base = order.snapshot.parameters
        with np.errstate(over="ignore"):  # the acceptance check sees what is not finite
            found = {name: base[name] + way for name, way in found.items()}
    return {**raw, "tensors": found}


def count_bytes(raw: object) -> int:
    """Return how many bytes an answer's arrays travelled as; 0 for what has none."""
    tensors = raw.get("tensors") if isinstance(raw, dict) else None
    arrays = tensors.values() if isinstance(tensors, dict) else ()
    return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))

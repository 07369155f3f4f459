"""Orders told how to answer, and answers brought back into the model's own forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal, TypeAlias, cast, get_args

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.kernels.unpacking import unpack
from stoilo.learn.tensors import Array, Form
from stoilo.learn.transport.compressed import Compressed
from stoilo.learn.transport.interface import Raw, Transport, refusing
from stoilo.learn.transport.ternary import Ternary
from stoilo.learn.work import Order, Plain

__all__ = [
    "TransportName",
    "as_transport",
    "ask",
    "asked",
    "count_bytes",
    "receive",
]

TransportName: TypeAlias = Literal["raw", "compressed", "ternary"]
_KEY = "transport"


def as_transport(wish: Transport | TransportName) -> Transport:
    """Return the codec of that name with its usual settings, or the codec itself.

    Raises:
        UsageError: ``STO-T091`` for another name.
    """
    if not isinstance(wish, str):
        return wish
    match wish:
        case "raw":
            return Raw()
        case "compressed":
            return Compressed()
        case "ternary":
            return Ternary()
    raise UsageError(
        "STO-T091",
        f"arrays cannot travel as {wish!r}",
        hint=f"one of {', '.join(get_args(TransportName))}, or an object of their classes",
    )


def ask(order: Order, transport: Transport) -> Order:
    """Return the order with what its task must be told to encode its answer.

    It stands in the order's settings: so it is part of the job's key and of checkpoints,
    and an answer is decoded as it was asked for, also after a restart with other options.
    """
    told = None if order.kernel == "evaluate" else transport.ask(order)
    if told is None:
        return order
    return replace(order, settings={**order.settings, _KEY: dict(told)})


def asked(order: Order) -> dict[str, Plain] | None:
    """Return what the bytes of the order's answer mean: codec and constants, no seed."""
    told = order.settings.get(_KEY)
    if told is None:
        return None
    known = cast("dict[str, Plain]", told)  # ours: `ask` wrote it
    return {name: value for name, value in known.items() if name != "seed"}


def receive(raw: object, order: Order, forms: Mapping[str, Form]) -> object:
    """Return an answer (hostile, unchecked) with its arrays decoded.

    Names that are missing stay so, and everything else is as it came: the acceptance
    check comes after this one.

    Raises:
        TrustError: ``STO-T090`` for arrays that are not encoded as was asked for.
    """
    told = asked(order)
    if told is None or not isinstance(raw, dict):
        return raw
    plain = {name: (form.dtype, form.shape) for name, form in forms.items()}
    with refusing():
        read: Callable[..., dict[str, Array]] = unpack  # untyped: it travels as source
        found = read(told, raw.get("tensors"), plain)
    if told["codec"] == "ternary" and order.settings.get("give") == "parameters":
        found = _add_way(order, found)
    return {**raw, "tensors": found}


def _add_way(order: Order, moved: Mapping[str, Array]) -> dict[str, Array]:
    """Return where the way from the order's version leads."""
    base = order.snapshot.parameters
    with np.errstate(over="ignore"):  # the acceptance check sees what is not finite
        return {name: base[name] + way for name, way in moved.items()}


def count_bytes(raw: object) -> int:
    """Return how many bytes an answer's arrays travelled as; 0 for what has none."""
    tensors = raw.get("tensors") if isinstance(raw, dict) else None
    arrays = tensors.values() if isinstance(tensors, dict) else ()
    return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))

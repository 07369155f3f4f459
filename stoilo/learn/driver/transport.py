"""Codecs of arrays: how an order is told to answer, and answers become arrays again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Protocol, TypeAlias, cast, get_args

import numpy as np

from stoilo.core.errors import TrustError, UsageError
from stoilo.learn.core.orders import Order
from stoilo.learn.core.states import Plain
from stoilo.learn.core.tensors import Array, Form
from stoilo.learn.kernels.encoding import unpack

TransportName: TypeAlias = Literal["raw", "compressed", "ternary"]
MOST_BLOCK = 1 << 20
_KEY = "transport"


class Transport(Protocol):
    """One codec and its settings."""

    @property
    def share(self) -> float:
        """About how many bytes travel for one byte of float32, to estimate times."""

    def ask(self, order: Order) -> Mapping[str, Plain] | None:
        """Return what the task is told; None when it need not encode."""


@dataclass(frozen=True, slots=True)
class Raw:
    """Arrays as they are: nothing to be told, nothing to be decoded."""

    share: ClassVar = 1.0

    def ask(self, order: Order) -> None:  # noqa: ARG002 - a codec's interface
        """Say that the task need not encode."""
        return


@dataclass(frozen=True, slots=True)
class Compressed:
    """Without loss: the bytes of equal rank together, each rank compressed by zlib.

    Mantissas of gradients are noise, signs and exponents are not: a float32 needs about 27
    of its 32 bits. Where whole layers are still, or many entries are zero, much less. The
    frame is described at `stoilo.learn.kernels.encoding.compress`.
    """

    share: ClassVar = 0.85

    def ask(self, order: Order) -> Mapping[str, Plain]:  # noqa: ARG002 - a codec's interface
        """Return the codec's name."""
        return {"codec": "compressed"}


@dataclass(frozen=True, slots=True)
class Ternary:
    """Of each entry only -1, 0 or 1 times its block's largest size, drawn without bias.

    What is noise in one answer averages out over many: the fewer samples or answers make
    a step, the smaller the learning rate must be. Where a kernel returns parameters, the
    way from the order's version travels, and it is added to that version here.

    Source: Wen et al. 2017, "TernGrad", §3, with a scale for each block of a tensor instead
    of one a tensor (as buckets in Alistarh et al. 2017, "QSGD", §3.3): the more entries
    share a scale, the more noise, above all where few are large. Nothing is clipped before
    the draw, so the expectation of what arrives is what was computed (to 2^-24 of the
    scale). The frame is described at `stoilo.learn.kernels.encoding.make_ternary`.

    Attributes:
        block: entries that share a scale. Each costs 1.6 bits and its part of a scale:
            1.73 bits with blocks of 256 float32.
    """

    block: int = 256

    def __post_init__(self) -> None:
        """Refuse a block that no scale could be shared by."""
        if type(self.block) is not int or not 1 <= self.block <= MOST_BLOCK:
            raise UsageError(
                "STO-T040",
                f"a block of {self.block} entries cannot be encoded",
                hint=f"a whole number from 1 to {MOST_BLOCK}; 256 is usual",
            )

    @property
    def share(self) -> float:
        """Of float32."""
        return 1.6 / 32 + 1 / self.block

    def ask(self, order: Order) -> Mapping[str, Plain]:
        """Return codec, block, and a seed that copies of the same order share."""
        # Without a common seed no quorum of copies could ever agree on the draw.
        words = f"{order.key}\0{order.snapshot.version}\0{order.settings.get('seed')}"
        seed = int.from_bytes(hashlib.sha256(words.encode()).digest()[:4], "big")
        return {"codec": "ternary", "block": self.block, "seed": seed}


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
    if told["codec"] == "ternary" and order.gives_parameters:
        base = order.snapshot.parameters
        with np.errstate(over="ignore"):  # the acceptance check sees what is not finite
            found = {name: base[name] + way for name, way in found.items()}
    return {**raw, "tensors": found}


def count_bytes(raw: object) -> int:
    """Return how many bytes an answer's arrays travelled as; 0 for what has none."""
    tensors = raw.get("tensors") if isinstance(raw, dict) else None
    arrays = tensors.values() if isinstance(tensors, dict) else ()
    return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))

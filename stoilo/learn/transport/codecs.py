"""Codecs of arrays: how an order is told to answer, and answers become arrays again."""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeAlias, cast, get_args

import numpy as np
from numpy.typing import NDArray

from stoilo.core.errors import TrustError, UsageError
from stoilo.learn.core.orders import Order, Plain
from stoilo.learn.core.tensors import Array, Form
from stoilo.learn.kernels.encoding import DIGITS, decompress, read_ternary, unpack

__all__ = [
    "Compressed",
    "Frame",
    "Raw",
    "Ternary",
    "Transport",
    "TransportName",
    "as_transport",
    "ask",
    "asked",
    "count_bytes",
    "receive",
    "refusing",
]


Frame = NDArray[np.uint8]
"""One encoded array: a vector of bytes."""


class Transport(Protocol):
    """One codec and its settings."""

    @property
    def share(self) -> float:
        """About how many bytes travel for one byte of the array, to estimate times."""

    @property
    def is_lossless(self) -> bool:
        """Whether what arrives is what was sent; else what is sent is a difference."""

    def ask(self, order: Order) -> Mapping[str, Plain] | None:
        """Return what the task is told; None when it need not encode."""

    def bounds(self, form: Form) -> tuple[int, int]:
        """Return the least and the most bytes that a frame of this form can have."""

    def decode(self, frame: Frame, form: Form) -> Array:
        """Return the array, of exactly this form; its entries may be infinite or NaN.

        Takes no more than a few times the array's own memory, whatever the bytes are.

        Raises:
            TrustError: ``STO-T090``.
        """


@dataclass(frozen=True, slots=True)
class Raw:
    """Arrays as they are: nothing to be told, nothing to be decoded."""

    @property
    def share(self) -> float:
        """All of it."""
        return 1.0

    @property
    def is_lossless(self) -> bool:
        """Whether what arrives is what was sent: yes."""
        return True

    def ask(self, order: Order) -> None:  # noqa: ARG002 - a codec's interface
        """Say that the task need not encode."""
        return

    def bounds(self, form: Form) -> tuple[int, int]:
        """Return the array's own size, twice."""
        size = int(np.prod(form.shape)) * np.dtype(form.dtype).itemsize
        return size, size

    def decode(self, frame: Frame, form: Form) -> Array:
        """Return the array behind its bytes.

        Raises:
            TrustError: ``STO-T090`` for another number of bytes.
        """
        with refusing():
            return np.frombuffer(frame.tobytes(), form.dtype).reshape(form.shape)


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """Turn a decoder's fault into our error.

    Raises:
        TrustError: ``STO-T090`` with the fault.
    """
    try:
        yield
    except ValueError as fault:
        raise TrustError(
            "STO-T090", f"a volunteer's answer is not used: {fault}"
        ) from None


_LENGTH = 4  # bytes of a plane's length


@dataclass(frozen=True, slots=True)
class Compressed:
    """Lossless; the frame is described at `stoilo.learn.kernels.encoding.compress`."""

    @property
    def share(self) -> float:
        """About what is left of gradients in float32."""
        return 0.85

    @property
    def is_lossless(self) -> bool:
        """Whether what arrives is what was sent: yes."""
        return True

    def ask(self, order: Order) -> Mapping[str, Plain]:  # noqa: ARG002 - a codec's interface
        """Return the codec's name."""
        return {"codec": "compressed"}

    def bounds(self, form: Form) -> tuple[int, int]:
        """Return the bytes of the lengths alone, and those with nothing compressed."""
        ranks = np.dtype(form.dtype).itemsize
        head = ranks * _LENGTH
        return head, head + ranks * math.prod(form.shape)

    def decode(self, frame: Frame, form: Form) -> Array:
        """Return the array.

        Raises:
            TrustError: ``STO-T090``: a length that is too large, bytes too many or too few,
                a stream that is damaged or ends elsewhere.
        """
        with refusing():
            read: Callable[..., Array] = decompress  # untyped: it travels as source
            return read(frame, form.dtype, form.shape)


MOST_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Ternary:
    """Unbiased signs; the frame is described at `stoilo.learn.kernels.encoding`.

    What is noise in one answer averages out over many: the fewer samples or answers make
    a step, the smaller the learning rate must be. Where a kernel returns parameters, the
    way from the order's version travels, and it is added to that version here.

    Attributes:
        block: entries that share a scale. Each costs 1.6 bits and its part of a scale:
            1.73 bits with blocks of 256 float32.
    """

    block: int = 256

    def __post_init__(self) -> None:
        """Refuse a block that no scale could be shared by."""
        if type(self.block) is not int or not 1 <= self.block <= MOST_BLOCK:
            raise UsageError(
                "STO-T091",
                f"a block of {self.block} entries cannot be encoded",
                hint=f"a whole number from 1 to {MOST_BLOCK}; 256 is usual",
            )

    @property
    def share(self) -> float:
        """Of float32."""
        return 1.6 / 32 + 1 / self.block

    @property
    def is_lossless(self) -> bool:
        """Whether what arrives is what was sent: no."""
        return False

    def ask(self, order: Order) -> Mapping[str, Plain]:
        """Return codec, block, and a seed that copies of the same order share."""
        words = f"{order.key}\0{order.snapshot.version}\0{order.settings.get('seed')}"
        seed = int.from_bytes(hashlib.sha256(words.encode()).digest()[:4], "big")
        return {"codec": "ternary", "block": self.block, "seed": seed}

    def bounds(self, form: Form) -> tuple[int, int]:
        """Return the frame's exact size, twice."""
        count = math.prod(form.shape)
        scales = -(-count // self.block) * np.dtype(form.dtype).itemsize
        size = scales + -(-count // DIGITS)
        return size, size

    def decode(self, frame: Frame, form: Form) -> Array:
        """Return the array.

        Raises:
            TrustError: ``STO-T090``: another number of bytes, a scale that is negative or
                not finite, a byte that is no five signs, signs after the last entry.
        """
        with refusing():
            read: Callable[..., Array] = read_ternary  # untyped: it travels as source
            return read(frame, form.dtype, form.shape, self.block)


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

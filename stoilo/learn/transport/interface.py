"""What every codec of arrays offers to the side that trusts nobody."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stoilo.core.errors import TrustError
from stoilo.learn.tensors import Array, Form
from stoilo.learn.work import Order, Plain

__all__ = ["Frame", "Raw", "Transport", "refusing"]

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

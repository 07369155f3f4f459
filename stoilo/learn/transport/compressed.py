"""Without loss: the bytes of equal rank together, each rank compressed by zlib.

Mantissas of gradients are noise, signs and exponents are not: a float32 needs about 27 of
its 32 bits. Where whole layers are still, or many entries are zero, much less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from stoilo.learn.kernels.unpacking import decompress
from stoilo.learn.tensors import Array, Form
from stoilo.learn.transport.interface import Frame, refusing
from stoilo.learn.work import Order, Plain

__all__ = ["Compressed"]

_LENGTH = 4  # bytes of a plane's length


@dataclass(frozen=True, slots=True)
class Compressed:
    """Lossless; the frame is described at `stoilo.learn.kernels.packing.compress`."""

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

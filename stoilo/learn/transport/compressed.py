"""Without loss: the bytes of equal rank together, each rank compressed by zlib.

Mantissas of gradients are noise, signs and exponents are not: a float32 needs about 27 of
its 32 bits. Where whole layers are still, or many entries are zero, much less.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stoilo.learn.tensors import Array, Form
from stoilo.learn.transport.interface import Frame, refused
from stoilo.learn.work import Order, Plain

__all__ = ["Compressed"]

_LENGTH = np.dtype("<u4")


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
        head = ranks * _LENGTH.itemsize
        return head, head + ranks * math.prod(form.shape)

    def decode(self, frame: Frame, form: Form) -> Array:
        """Return the array.

        Raises:
            TrustError: ``STO-T090``: a length that is too large, bytes too many or too few,
                a stream that is damaged or ends elsewhere.
        """
        least, most = self.bounds(form)
        if not least <= frame.size <= most:
            raise refused("a compressed array is too long or too short")
        count, ranks = math.prod(form.shape), np.dtype(form.dtype).itemsize
        lengths = [int(n) for n in np.frombuffer(frame[:least].tobytes(), _LENGTH)]
        if max(lengths) > count or least + sum(lengths) != frame.size:
            raise refused("a compressed array's lengths are not its bytes'")
        found = np.empty((count, ranks), np.uint8)
        start = least
        for rank, length in enumerate(lengths):
            plane = _inflate(frame[start : start + length].tobytes(), count)
            found[:, rank] = np.frombuffer(plane, np.uint8)
            start += length
        return np.frombuffer(found.tobytes(), form.dtype).reshape(form.shape)


def _inflate(plane: bytes, count: int) -> bytes:
    """Return `count` bytes; never more than one further is written before it is refused."""
    if len(plane) == count:
        return plane
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(plane, count + 1)
    except zlib.error:
        raise refused("a compressed array is damaged") from None
    if len(found) != count or not stream.eof or stream.unused_data:
        raise refused("a compressed array does not hold as many entries as its form")
    return found

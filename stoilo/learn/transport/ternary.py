"""Ternary: of each entry only -1, 0 or 1 times its block's largest size, drawn without bias.

Source: Wen et al. 2017, "TernGrad", §3, with a scale for each block of a tensor instead of
one a tensor (as buckets in Alistarh et al. 2017, "QSGD", §3.3): the more entries share a
scale, the more noise, above all where few are large. Nothing is clipped before the draw, so
the expectation of what arrives is what was computed (to 2^-24 of the scale).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.kernels.unpacking import DIGITS, read_ternary
from stoilo.learn.tensors import Array, Form
from stoilo.learn.transport.interface import Frame, refusing
from stoilo.learn.work import Order, Plain

__all__ = ["Ternary"]

MOST_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Ternary:
    """Unbiased signs; the frame is described at `stoilo.learn.kernels.packing`.

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

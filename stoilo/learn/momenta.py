"""By how much one pass moves the running statistics of each normalising layer."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["USUAL", "Momenta", "share_of"]

USUAL = 0.1
"""Torch's default."""


@dataclass(frozen=True, slots=True)
class Momenta:
    """The momentum of each layer that keeps running statistics.

    Attributes:
        layers: name of the layer as buffers have it in front, and its momentum; None for
            a cumulative average, whose share is one over the number of passes.
    """

    layers: tuple[tuple[str, float | None], ...] = ()

    def share(self, layer: str, passes: float) -> float:
        """Return the share of the last of so many passes in `layer`'s statistics."""
        momentum = dict(self.layers).get(layer, USUAL)
        return 1.0 / max(1.0, passes) if momentum is None else momentum


def share_of(momentum: float | Momenta, layer: str, passes: float) -> float:
    """Return the share of the last pass, where all layers may have the same one."""
    if isinstance(momentum, Momenta):
        return momentum.share(layer, passes)
    return momentum

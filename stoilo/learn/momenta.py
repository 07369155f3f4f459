"""By how much one pass moves the running statistics of each normalising layer."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["USUAL", "Layer", "Momenta"]

USUAL = 0.1
"""Torch's default."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer that keeps running statistics.

    Attributes:
        name: as its buffers have it in front.
        momentum: of the running statistics; None for a cumulative average, whose share is
            one over the number of passes.
        values: of each channel in one sample (1, or the size of an image there); 0 where
            that is not known, or the layer is used several times in a pass.
    """

    name: str
    momentum: float | None = USUAL
    values: int = 0

    def share(self, passes: float) -> float:
        """Return the share of the last of so many passes in the statistics."""
        if self.momentum is None:
            return 1.0 / max(1.0, passes)
        return self.momentum


@dataclass(frozen=True, slots=True)
class Momenta:
    """Those of a model; the same for all layers that are not among `layers`."""

    layers: tuple[Layer, ...] = ()
    usual: float = USUAL

    def find(self, name: str) -> Layer:
        """Return what is known of the layer called `name`."""
        known = {layer.name: layer for layer in self.layers}
        return known.get(name) or Layer(name, self.usual)

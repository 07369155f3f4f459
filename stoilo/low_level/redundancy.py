"""Redundancy options: `CreateOptions` and two ready-made sets."""

from __future__ import annotations

from stoilo.client.options import CLASSIC, TRIVIAL, CreateOptions
from stoilo.core.types import Redundancy

__all__ = [
    "CLASSIC",
    "CLASSIC_OPTIONS",
    "TRIVIAL",
    "TRIVIAL_OPTIONS",
    "CreateOptions",
    "Redundancy",
]

TRIVIAL_OPTIONS = TRIVIAL
CLASSIC_OPTIONS = CLASSIC

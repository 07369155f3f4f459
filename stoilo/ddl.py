"""The name of 2025 for `stoilo.ml`."""

from __future__ import annotations

from stoilo.ml import DPBGDOptions, DPBGDTrainer

__all__ = ["DPBGDOptions", "DPBGDTrainer"]

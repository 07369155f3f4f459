"""The trainers of the thesis (§7.1.1): ``stoilo.ml.DPBGDTrainer``."""

from __future__ import annotations

from stoilo.learn.trainers.dpbgd import DPBGDOptions, DPBGDTrainer

__all__ = ["DPBGDOptions", "DPBGDTrainer"]

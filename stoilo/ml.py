"""The trainers under the name of the thesis (§7.1.1): ``stoilo.ml.DPBGDTrainer``.

Names are imported when they are first used: those for arrays need no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoilo import learn

if TYPE_CHECKING:
    from stoilo.learn.trainers.dpbgd import DPBGDOptions, DPBGDTrainer
    from stoilo.learn.trainers.fitting import fit
    from stoilo.learn.trainers.named import (
        DiLoCoTrainer,
        DownpourTrainer,
        FedAvgTrainer,
        LargeMinibatchTrainer,
        LogisticTrainer,
        SandblasterTrainer,
        SynchronousTrainer,
        VCASGDTrainer,
    )
    from stoilo.learn.trainers.options import StopRule, TrainerOptions

__all__ = [
    "DPBGDOptions",
    "DPBGDTrainer",
    "DiLoCoTrainer",
    "DownpourTrainer",
    "FedAvgTrainer",
    "LargeMinibatchTrainer",
    "LogisticTrainer",
    "SandblasterTrainer",
    "StopRule",
    "SynchronousTrainer",
    "TrainerOptions",
    "VCASGDTrainer",
    "fit",
]


def __getattr__(name: str) -> object:
    """Import a public name at its first use (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module 'stoilo.ml' has no attribute {name!r}")
    value: object = getattr(learn, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)

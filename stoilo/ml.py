"""The trainers under the name of the thesis (§7.1.1): ``stoilo.ml.DPBGDTrainer``."""

from stoilo.learn.core.vision import import_torchvision
from stoilo.learn.trainers.dpbgd import DPBGDOptions, DPBGDTrainer
from stoilo.learn.trainers.fitting import fit
from stoilo.learn.trainers.named import (
    DiLoCoTrainer,
    DownpourTrainer,
    FedAvgTrainer,
    LargeMinibatchTrainer,
    LogisticTrainer,
    SandblasterTrainer,
    SspTrainer,
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
    "SspTrainer",
    "StopRule",
    "SynchronousTrainer",
    "TrainerOptions",
    "VCASGDTrainer",
    "fit",
    "import_torchvision",
]

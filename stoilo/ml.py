"""The trainers under the name of the thesis (§7.1.1): ``stoilo.ml.DPBGDTrainer``."""

from stoilo.learn import (
    DiLoCoTrainer,
    DownpourTrainer,
    DPBGDOptions,
    DPBGDTrainer,
    FedAvgTrainer,
    LargeMinibatchTrainer,
    LogisticTrainer,
    SandblasterTrainer,
    SspTrainer,
    StopRule,
    SynchronousTrainer,
    TrainerOptions,
    VCASGDTrainer,
    fit,
    import_torchvision,
)

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

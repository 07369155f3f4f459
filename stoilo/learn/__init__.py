"""Training on volunteers: trainers, models, data, and `fit`, which puts them together.

    trained = await stoilo.learn.fit("vcasgd", model, (x, y), conn, loss=loss, epochs=5)

Names are imported when they are first used: ``import stoilo.learn`` loads no torch, and
nothing here needs it before a torch model is given.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stoilo.learn.backends.local import LocalBackend
    from stoilo.learn.backends.server import ServerBackend
    from stoilo.learn.backends.simulated import SimulatedBackend, SimulatedHost, Spell
    from stoilo.learn.data import (
        Part,
        chain,
        collect,
        split,
    )
    from stoilo.learn.display import Display
    from stoilo.learn.evaluation import Evaluation, evaluate
    from stoilo.learn.facade import METHODS, fit, make_trainer
    from stoilo.learn.lines import (
        deal_blocks,
        deal_by_key,
        parse_columns,
        parse_set,
        parse_triple,
        parse_vector,
        read_lines,
        split_lines,
    )
    from stoilo.learn.methods.downpour import DownpourSettings
    from stoilo.learn.methods.federated import FederatedSettings
    from stoilo.learn.methods.largeminibatch import LargeMinibatchSettings
    from stoilo.learn.methods.lbfgs import Rules
    from stoilo.learn.methods.plans import LocalWork, Staleness
    from stoilo.learn.methods.sandblaster import SandblasterSettings
    from stoilo.learn.methods.synchronous import SynchronousSettings
    from stoilo.learn.models import ArrayModel, TorchModel
    from stoilo.learn.optimizers import Adagrad, Adam, Momentum, Sgd
    from stoilo.learn.ps.logistic import LogisticSettings
    from stoilo.learn.ps.server import ParameterServer
    from stoilo.learn.robust import (
        CentredClipping,
        Clip,
        CoordinateMedian,
        Krum,
        TrimmedMean,
    )
    from stoilo.learn.run import Run, RunSettings
    from stoilo.learn.scores import Scores
    from stoilo.learn.splits import (
        split_by_classes,
        split_by_dirichlet,
        split_by_label,
    )
    from stoilo.learn.timing import Conditions, Estimate
    from stoilo.learn.torch_optimizer import TorchOptimizer
    from stoilo.learn.trainers.asynchronous import DownpourTrainer, VCASGDTrainer
    from stoilo.learn.trainers.dpbgd import DPBGDOptions, DPBGDTrainer
    from stoilo.learn.trainers.epoch import Epoch, Trained, TrainingUpdate
    from stoilo.learn.trainers.later import (
        StaleSyncDataParallelTrainer,
        StepMetrics,
        SyncDataParallelTrainer,
    )
    from stoilo.learn.trainers.logistic import LogisticTrainer
    from stoilo.learn.trainers.metrics import EpochMetrics
    from stoilo.learn.trainers.rounds import (
        DiLoCoTrainer,
        FedAvgTrainer,
        LargeMinibatchTrainer,
        SandblasterTrainer,
        SynchronousTrainer,
    )
    from stoilo.learn.trainers.stopping import StopRule
    from stoilo.learn.trainers.trainer import Trainer, TrainerOptions
    from stoilo.learn.transport import Compressed, Raw, Ternary

_PLACES = {
    "Adagrad": "optimizers",
    "Adam": "optimizers",
    "ArrayModel": "models",
    "CentredClipping": "robust",
    "Clip": "robust",
    "Compressed": "transport",
    "Conditions": "timing",
    "CoordinateMedian": "robust",
    "DPBGDOptions": "trainers.dpbgd",
    "DPBGDTrainer": "trainers.dpbgd",
    "DiLoCoTrainer": "trainers.rounds",
    "Display": "display",
    "DownpourSettings": "methods.downpour",
    "DownpourTrainer": "trainers.asynchronous",
    "Epoch": "trainers.epoch",
    "EpochMetrics": "trainers.metrics",
    "Estimate": "timing",
    "Evaluation": "evaluation",
    "FedAvgTrainer": "trainers.rounds",
    "FederatedSettings": "methods.federated",
    "Krum": "robust",
    "LargeMinibatchSettings": "methods.largeminibatch",
    "LargeMinibatchTrainer": "trainers.rounds",
    "LocalBackend": "backends.local",
    "LocalWork": "methods.plans",
    "LogisticSettings": "ps.logistic",
    "LogisticTrainer": "trainers.logistic",
    "METHODS": "facade",
    "Momentum": "optimizers",
    "ParameterServer": "ps.server",
    "Part": "data",
    "Raw": "transport",
    "Rules": "methods.lbfgs",
    "Run": "run",
    "RunSettings": "run",
    "SandblasterSettings": "methods.sandblaster",
    "SandblasterTrainer": "trainers.rounds",
    "Scores": "scores",
    "ServerBackend": "backends.server",
    "Sgd": "optimizers",
    "SimulatedBackend": "backends.simulated",
    "SimulatedHost": "backends.simulated",
    "Spell": "backends.simulated",
    "StaleSyncDataParallelTrainer": "trainers.later",
    "Staleness": "methods.plans",
    "StepMetrics": "trainers.later",
    "StopRule": "trainers.stopping",
    "SyncDataParallelTrainer": "trainers.later",
    "SynchronousSettings": "methods.synchronous",
    "SynchronousTrainer": "trainers.rounds",
    "Ternary": "transport",
    "TorchModel": "models",
    "TorchOptimizer": "torch_optimizer",
    "Trained": "trainers.epoch",
    "Trainer": "trainers.trainer",
    "TrainerOptions": "trainers.trainer",
    "TrainingUpdate": "trainers.epoch",
    "TrimmedMean": "robust",
    "VCASGDTrainer": "trainers.asynchronous",
    "chain": "data",
    "collect": "data",
    "deal_blocks": "lines",
    "deal_by_key": "lines",
    "evaluate": "evaluation",
    "fit": "facade",
    "make_trainer": "facade",
    "parse_columns": "lines",
    "parse_set": "lines",
    "parse_triple": "lines",
    "parse_vector": "lines",
    "read_lines": "lines",
    "split": "data",
    "split_by_classes": "splits",
    "split_by_dirichlet": "splits",
    "split_by_label": "splits",
    "split_lines": "lines",
}

__all__ = [
    "METHODS",
    "Adagrad",
    "Adam",
    "ArrayModel",
    "CentredClipping",
    "Clip",
    "Compressed",
    "Conditions",
    "CoordinateMedian",
    "DPBGDOptions",
    "DPBGDTrainer",
    "DiLoCoTrainer",
    "Display",
    "DownpourSettings",
    "DownpourTrainer",
    "Epoch",
    "EpochMetrics",
    "Estimate",
    "Evaluation",
    "FedAvgTrainer",
    "FederatedSettings",
    "Krum",
    "LargeMinibatchSettings",
    "LargeMinibatchTrainer",
    "LocalBackend",
    "LocalWork",
    "LogisticSettings",
    "LogisticTrainer",
    "Momentum",
    "ParameterServer",
    "Part",
    "Raw",
    "Rules",
    "Run",
    "RunSettings",
    "SandblasterSettings",
    "SandblasterTrainer",
    "Scores",
    "ServerBackend",
    "Sgd",
    "SimulatedBackend",
    "SimulatedHost",
    "Spell",
    "StaleSyncDataParallelTrainer",
    "Staleness",
    "StepMetrics",
    "StopRule",
    "SyncDataParallelTrainer",
    "SynchronousSettings",
    "SynchronousTrainer",
    "Ternary",
    "TorchModel",
    "TorchOptimizer",
    "Trained",
    "Trainer",
    "TrainerOptions",
    "TrainingUpdate",
    "TrimmedMean",
    "VCASGDTrainer",
    "chain",
    "collect",
    "deal_blocks",
    "deal_by_key",
    "evaluate",
    "fit",
    "make_trainer",
    "parse_columns",
    "parse_set",
    "parse_triple",
    "parse_vector",
    "read_lines",
    "split",
    "split_by_classes",
    "split_by_dirichlet",
    "split_by_label",
    "split_lines",
]


def __getattr__(name: str) -> object:
    """Import a public name at its first use (PEP 562)."""
    if name not in _PLACES:
        raise AttributeError(f"module 'stoilo.learn' has no attribute {name!r}")
    place = importlib.import_module(f"stoilo.learn.{_PLACES[name]}")
    value = getattr(place, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)

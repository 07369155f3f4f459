"""Training on volunteers: trainers, models, data, and `fit`, which puts them together.

    trained = await stoilo.learn.fit("vcasgd", model, (x, y), conn, loss=loss, epochs=5)

Names are imported when they are first used: ``import stoilo.learn`` loads no torch, and
nothing here needs it before a torch model is given.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from stoilo.core.errors import UsageError

if TYPE_CHECKING:
    from stoilo.learn.backends.local import LocalBackend
    from stoilo.learn.backends.server import ServerBackend
    from stoilo.learn.backends.simulated import SimulatedBackend, SimulatedHost, Spell
    from stoilo.learn.cells.cell import cell
    from stoilo.learn.cells.group import CellLimits
    from stoilo.learn.cells.timeline import draw_timeline, render_trace
    from stoilo.learn.coordinator.handing import (
        HandedRun,
        hand_over,
        list_handed,
        take_up,
    )
    from stoilo.learn.core.assignments import Assignment, assign_duplicate, assign_iid
    from stoilo.learn.core.data import (
        Part,
        chain,
        collect,
        scale_pixels,
        split,
        split_by_classes,
        split_by_dirichlet,
        split_by_label,
    )
    from stoilo.learn.core.exporting import export
    from stoilo.learn.core.lazy import LazyPart
    from stoilo.learn.core.models import ArrayModel, TorchModel
    from stoilo.learn.core.picture import draw
    from stoilo.learn.core.text_files import (
        deal_blocks,
        deal_by_key,
        number_triples,
        number_words,
        parse_columns,
        parse_set,
        parse_triple,
        parse_vector,
        read_lines,
        split_lines,
    )
    from stoilo.learn.driver.apart import harvest, plant
    from stoilo.learn.driver.codecs import (
        Compressed,
        Half,
        OneBit,
        PerLayer,
        PowerSGD,
        Quantised,
        Raw,
        Remainder,
        Ternary,
        TopK,
    )
    from stoilo.learn.driver.downlink import Delta
    from stoilo.learn.driver.run import Run, RunSettings
    from stoilo.learn.methods.base import LocalWork, Staleness
    from stoilo.learn.methods.downpour import DownpourSettings
    from stoilo.learn.methods.federated import FederatedSettings
    from stoilo.learn.methods.lbfgs import Rules
    from stoilo.learn.methods.logistic import LogisticSettings
    from stoilo.learn.methods.optimizers import (
        AdaDelta,
        Adagrad,
        Adam,
        Momentum,
        RmsProp,
        Sgd,
        TorchOptimizer,
        Yogi,
    )
    from stoilo.learn.methods.privacy import Privacy
    from stoilo.learn.methods.rules import (
        CentredClipping,
        Clip,
        CoordinateMedian,
        Krum,
        Mean,
        Near,
        TrimmedMean,
    )
    from stoilo.learn.methods.sandblaster import SandblasterSettings
    from stoilo.learn.methods.schedules import Cosine, StepDecay, TorchSchedule, WarmUp
    from stoilo.learn.methods.ssp import SspSettings
    from stoilo.learn.methods.staged import StagedSettings
    from stoilo.learn.methods.synchronous import (
        LargeMinibatchSettings,
        SynchronousSettings,
    )
    from stoilo.learn.store.server import ParameterServer
    from stoilo.learn.traffic.rounds import NodeTraffic
    from stoilo.learn.trainers.dpbgd import DPBGDOptions, DPBGDTrainer
    from stoilo.learn.trainers.epochs import (
        Epoch,
        EpochMetrics,
        Trained,
        TrainingUpdate,
    )
    from stoilo.learn.trainers.evaluation import Evaluation, Scores, evaluate
    from stoilo.learn.trainers.fitting import METHODS, evaluate_on, fit, make_trainer
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
    from stoilo.learn.trainers.parallel import (
        ParallelResult,
        ParallelSettings,
        ParallelTrainer,
        parallel,
    )
    from stoilo.learn.trainers.progress import Conditions, Display, Estimate
    from stoilo.learn.trainers.reclaiming import reclaim
    from stoilo.learn.trainers.region import Region
    from stoilo.learn.trainers.regions import Regions
    from stoilo.learn.trainers.staged import StagedTrainer, apply_wide, vocabulary_loss
    from stoilo.learn.trainers.trainer import Trainer
    from stoilo.learn.trainers.watching import MLflow, Page, TensorBoard, WandB
    from stoilo.sandbox.libraries.torchvision_import import import_torchvision

_HOMES = {
    "backends.local": "LocalBackend",
    "backends.server": "ServerBackend",
    "backends.simulated": "SimulatedBackend SimulatedHost Spell",
    "cells.cell": "cell",
    "cells.group": "CellLimits",
    "cells.timeline": "draw_timeline render_trace",
    "coordinator.handing": "HandedRun hand_over list_handed take_up",
    "core.assignments": "Assignment assign_duplicate assign_iid",
    "core.data": "Part chain collect scale_pixels split split_by_classes "
    "split_by_dirichlet split_by_label",
    "core.exporting": "export",
    "core.lazy": "LazyPart",
    "core.models": "ArrayModel TorchModel import_torchvision",
    "core.picture": "draw",
    "core.text_files": "deal_blocks deal_by_key number_triples number_words "
    "parse_columns parse_set parse_triple parse_vector read_lines split_lines",
    "driver.apart": "harvest plant",
    "driver.codecs": "Compressed Half OneBit PerLayer PowerSGD Quantised Raw Remainder "
    "Ternary TopK",
    "driver.downlink": "Delta",
    "driver.run": "Run RunSettings",
    "methods.base": "LocalWork Staleness",
    "methods.downpour": "DownpourSettings",
    "methods.federated": "FederatedSettings",
    "methods.lbfgs": "Rules",
    "methods.logistic": "LogisticSettings",
    "methods.optimizers": "AdaDelta Adagrad Adam Momentum RmsProp Sgd TorchOptimizer "
    "Yogi",
    "methods.privacy": "Privacy",
    "methods.rules": "CentredClipping Clip CoordinateMedian Krum Mean Near TrimmedMean",
    "methods.sandblaster": "SandblasterSettings",
    "methods.schedules": "Cosine StepDecay TorchSchedule WarmUp",
    "methods.ssp": "SspSettings",
    "methods.staged": "StagedSettings",
    "methods.synchronous": "LargeMinibatchSettings SynchronousSettings",
    "store.server": "ParameterServer",
    "traffic.rounds": "NodeTraffic",
    "trainers.dpbgd": "DPBGDOptions DPBGDTrainer",
    "trainers.epochs": "Epoch EpochMetrics Trained TrainingUpdate",
    "trainers.evaluation": "Evaluation Scores evaluate",
    "trainers.fitting": "METHODS evaluate_on fit make_trainer",
    "trainers.named": "DiLoCoTrainer DownpourTrainer FedAvgTrainer "
    "LargeMinibatchTrainer LogisticTrainer SandblasterTrainer SspTrainer "
    "SynchronousTrainer VCASGDTrainer",
    "trainers.options": "StopRule TrainerOptions",
    "trainers.parallel": "ParallelResult ParallelSettings ParallelTrainer parallel",
    "trainers.progress": "Conditions Display Estimate",
    "trainers.reclaiming": "reclaim",
    "trainers.region": "Region",
    "trainers.regions": "Regions",
    "trainers.staged": "StagedTrainer apply_wide vocabulary_loss",
    "trainers.trainer": "Trainer",
    "trainers.watching": "MLflow Page TensorBoard WandB",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

# fmt: off
__all__ = [
    "METHODS", "AdaDelta", "Adagrad", "Adam", "ArrayModel", "Assignment", "CellLimits",
    "CentredClipping", "Clip", "Compressed", "Conditions", "CoordinateMedian", "Cosine",
    "DPBGDOptions", "DPBGDTrainer", "Delta", "DiLoCoTrainer", "Display",
    "DownpourSettings", "DownpourTrainer", "Epoch", "EpochMetrics", "Estimate",
    "Evaluation", "FedAvgTrainer", "FederatedSettings", "Half", "HandedRun", "Krum",
    "LargeMinibatchSettings", "LargeMinibatchTrainer", "LazyPart", "LocalBackend",
    "LocalWork", "LogisticSettings", "LogisticTrainer", "MLflow", "Mean", "Momentum",
    "Near", "NodeTraffic", "OneBit", "Page", "ParallelResult", "ParallelSettings",
    "ParallelTrainer", "ParameterServer", "Part", "PerLayer", "PowerSGD", "Privacy",
    "Quantised", "Raw", "Region", "Regions", "Remainder", "RmsProp", "Rules", "Run",
    "RunSettings", "SandblasterSettings", "SandblasterTrainer", "Scores",
    "ServerBackend", "Sgd", "SimulatedBackend", "SimulatedHost", "Spell", "SspSettings",
    "SspTrainer", "StagedSettings", "StagedTrainer", "Staleness", "StepDecay",
    "StopRule", "SynchronousSettings", "SynchronousTrainer", "TensorBoard", "Ternary",
    "TopK", "TorchModel", "TorchOptimizer", "TorchSchedule", "Trained", "Trainer",
    "TrainerOptions",
    "TrainingUpdate", "TrimmedMean", "VCASGDTrainer", "WandB", "WarmUp", "Yogi",
    "apply_wide", "assign_duplicate", "assign_iid", "cell", "chain", "collect",
    "deal_blocks", "deal_by_key", "draw", "draw_timeline", "evaluate", "evaluate_on",
    "export", "fit", "hand_over", "harvest", "import_torchvision", "list_handed",
    "make_trainer", "number_triples", "number_words", "parallel", "parse_columns",
    "parse_set", "parse_triple", "parse_vector", "plant", "read_lines", "reclaim",
    "render_trace", "scale_pixels", "split", "split_by_classes", "split_by_dirichlet",
    "split_by_label", "split_lines", "take_up", "vocabulary_loss",
]
# fmt: on


def __getattr__(name: str) -> object:
    """Import a public name at its first use (PEP 562)."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'stoilo.learn' has no attribute {name!r}")
    try:
        home = importlib.import_module(f"stoilo.learn.{_HOME_OF[name]}")
    except ModuleNotFoundError as error:
        if (error.name or "stoilo").startswith("stoilo"):
            raise
        raise UsageError(
            "STO-U002",
            f"stoilo.learn.{name} needs the learn extra ({error.name} is missing)",
            hint="pip install 'stoilo[learn]'",
        ) from None
    value = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)

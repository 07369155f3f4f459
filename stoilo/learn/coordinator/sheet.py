"""What a handed-over training is: method and settings as JSON, sources as text, blobs.

Nothing in a sheet is executed where it is received. Settings become objects of a fixed list
of our own classes; kernels and whatever of the researcher's they reach are text, which goes
on to the server as his tasks; calls are nodes of the codec. What does not fit is refused by
name before anything leaves.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, cast

import msgspec
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from stoilo.client.capture import capture_calls
from stoilo.client.capture.arguments import StoredValue
from stoilo.client.capture.known import Captures
from stoilo.client.capture.modules import Captured, CapturedCalls
from stoilo.client.options import TaskLimits
from stoilo.core.codec.skeleton import decode, encode
from stoilo.core.digests import content_digest
from stoilo.core.errors import InternalError, UsageError
from stoilo.core.types import BOUNDS, Redundancy
from stoilo.learn.backends import Handle, Job
from stoilo.learn.core.models import Kernel, Model
from stoilo.learn.core.orders import Snapshot
from stoilo.learn.core.states import Plain
from stoilo.learn.core.tensors import Array
from stoilo.learn.driver import codecs
from stoilo.learn.driver.apart import ApartModel
from stoilo.learn.driver.probing import Look, look_at
from stoilo.learn.driver.transport import ask
from stoilo.learn.kernels import array_models
from stoilo.learn.methods import buffers, lbfgs, optimizers, rules, schedules
from stoilo.learn.methods.base import LocalWork, Staleness
from stoilo.learn.store.place import ShardPlace
from stoilo.learn.store.vectors import Planted
from stoilo.learn.trainers.options import StopRule, TrainerOptions
from stoilo.learn.trainers.trainer import Trainer

KERNELS: Final = ("evaluate", "gradient", "local_steps")
MOST_PARTS: Final = 4096
_CALL: Final[Mapping[str, object]] = {
    "parameters": None,
    "buffers": None,
    "data": None,
    "rows": None,
    "settings": {},
    "version": 0,
}
# fmt: off
_KINDS: Final[Mapping[str, type]] = {kind.__name__: kind for kind in (
    optimizers.Sgd, optimizers.Momentum, optimizers.Adam, optimizers.Yogi,
    optimizers.Adagrad, optimizers.RmsProp, optimizers.AdaDelta, rules.Mean, rules.Clip,
    rules.CoordinateMedian, rules.TrimmedMean, rules.Krum, rules.CentredClipping,
    rules.Near, schedules.WarmUp, schedules.StepDecay, schedules.Cosine, lbfgs.Rules,
    LocalWork, Staleness, StopRule, codecs.Raw, codecs.Compressed,
    codecs.Ternary, codecs.Half, codecs.Quantised, codecs.OneBit,
    codecs.TopK, codecs.PowerSGD, codecs.Remainder, codecs.PerLayer,
    Redundancy, TaskLimits, buffers.Layer, buffers.Momenta, ShardPlace, Planted,
)}  # what settings may be, beside plain values
OPTIONS: Final = (
    "in_flight", "tries", "by_speed", "clip", "least_loss", "seed", "stop", "schedule",
    "redundancy", "flavor", "limits", "transport",
)  # of `TrainerOptions`, those that travel
# fmt: on
_AT_HOME = frozenset({"folder", "server"})  # paths and objects of one machine
_RENAMED = {"kept": "share_kept"}  # argument → attribute, where they differ

Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Source = Annotated[str, msgspec.Meta(max_length=BOUNDS.source_bytes)]
Word = Annotated[str, msgspec.Meta(max_length=64)]


class PartRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A data part: the blob that holds it, as the server stores it."""

    digest: Digest
    samples: Annotated[int, msgspec.Meta(ge=1)]
    nbytes: Annotated[int, msgspec.Meta(ge=0)]  # of all arrays


class KernelRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A task function of this model: its text, and its call without order and data."""

    source: Source
    entry: Word
    call: Digest  # blob: an encoded node


class Sheet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole training but for its blobs."""

    method: Word
    level: Word
    first: Digest  # blob: safetensors, names ``parameters/…`` and ``buffers/…``
    kernels: Annotated[dict[Word, KernelRow], msgspec.Meta(max_length=len(KERNELS))]
    looks: Annotated[dict[Word, Look], msgspec.Meta(max_length=len(KERNELS))]
    parts: Annotated[list[PartRow], msgspec.Meta(min_length=1, max_length=MOST_PARTS)]
    settings: dict[Word, Any]  # of `make_trainer`, beside model, data and place
    options: dict[Word, Any]
    held_out: PartRow | None = None  # evaluated by volunteers at each epoch's end

    def blobs(self) -> list[str]:
        """Return the digests of the blobs it names, each once."""
        rows = [*self.parts, *([self.held_out] if self.held_out else [])]
        names = [row.digest for row in rows] + [k.call for k in self.kernels.values()]
        return [*dict.fromkeys([self.first, *names])]


def pack(value: object, where: str) -> Plain:
    """Return settings as JSON holds them.

    Raises:
        UsageError: ``STO-T040`` naming what cannot be handed over.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | np.floating):
        return float(value)
    if isinstance(value, list | tuple):
        return [pack(one, f"{where}[{i}]") for i, one in enumerate(value)]
    if isinstance(value, dict) and all(n and isinstance(n, str) for n in value):
        return {name: pack(one, f"{where}[{name!r}]") for name, one in value.items()}
    kind = type(value)
    if _KINDS.get(kind.__name__) is not kind or _has_begun(value):
        raise refuse(f"{where} ({kind.__name__})")
    named = {n: _RENAMED.get(n, n) for n in inspect.signature(kind).parameters}
    rest = {n: pack(getattr(value, a), f"{where}.{n}") for n, a in named.items()}
    return {"": kind.__name__, **rest}


def _has_begun(value: object) -> bool:
    """Whether an optimiser has taken steps: what it learned would be lost."""
    return hasattr(value, "save") and bool(cast("Any", value).save().tensors)


def refuse(what: str) -> UsageError:
    """Return the error for what stays at home."""
    return UsageError(
        "STO-T040",
        f"{what} cannot be handed over",
        hint="plain values and stoilo.learn's own settings travel; train at home"
        " with callbacks, folders, parameter servers and torch's optimisers",
    )


def unpack(value: object) -> Any:  # noqa: ANN401 - whatever the settings hold
    """Return what `pack` packed (hostile): objects of `_KINDS` and plain values.

    Raises:
        UsageError: ``STO-T040``.
    """
    if isinstance(value, list):
        return tuple(unpack(one) for one in value)
    if not isinstance(value, dict):
        return value
    rest = {str(name): unpack(one) for name, one in value.items() if name}
    if "" not in value:
        return rest
    try:
        return _KINDS[value[""]](**rest)
    except (KeyError, TypeError, ValueError) as error:
        raise refuse(f"a setting ({type(error).__name__})") from None


def pack_options(options: TrainerOptions, least_loss: float) -> dict[str, Plain]:
    """Return the options that travel; refuse those that hold something of this process."""
    usual = TrainerOptions()
    for name in (
        "folder",
        "progress",
        "conditions",
        "watcher",
        "on_epoch",
        "downlink",
        "privacy",
    ):
        if getattr(options, name) != getattr(usual, name):
            raise refuse(f"options.{name}")
    if options.stop is not None and options.held_out is not None:
        raise refuse("options.stop on held-out data")
    found = {n: pack(getattr(options, n), f"options.{n}") for n in OPTIONS}
    # JSON has no infinity: None is what the model's own loss says, here nothing.
    return found | {"least_loss": least_loss if np.isfinite(least_loss) else None}


def unpack_settings(sheet: Sheet) -> tuple[dict[str, Any], TrainerOptions]:
    """Return arguments of `make_trainer` and options of a sheet (hostile).

    Raises:
        UsageError: ``STO-T040``.
    """
    strange = (_AT_HOME & {*sheet.settings}) | ({*sheet.options} - {*OPTIONS})
    if strange:
        raise refuse(", ".join(sorted(strange)))
    settings = {name: unpack(value) for name, value in sheet.settings.items()}
    given = {name: unpack(value) for name, value in sheet.options.items()}
    # Nothing of the researcher's is computed here, so no answer is computed again.
    return settings, TrainerOptions(**given, home_checks=0.0)


def write_sheet(
    method: str,
    trainer: Trainer,
    settings: Mapping[str, object],
    held_out: PartRow | None,
    parts: Iterable[PartRow],
) -> tuple[Sheet, dict[str, bytes]]:
    """Return a trainer that has not begun as a sheet, and the small blobs it names.

    A few samples are computed here, as a run at home does, so that the bound on answers
    is the same there.
    """
    model, run = trainer.form, trainer.run
    options = pack_options(trainer.options, run.settings.least_loss)
    given = {name: pack(value, name) for name, value in settings.items()}
    if _AT_HOME & {*given}:
        raise refuse(", ".join(sorted(_AT_HOME & {*given})))
    blobs: dict[str, bytes] = {}
    kernels = {name: _write_kernel(model, name, blobs) for name in KERNELS}
    first = _keep(blobs, save_snapshot(model.first()))
    looks = _look(trainer)
    rows = list(parts)
    sheet = Sheet(
        method, model.level, first, kernels, looks, rows, given, options, held_out
    )
    return sheet, blobs


def _keep(blobs: dict[str, bytes], data: bytes) -> str:
    digest = content_digest(data)
    blobs[digest] = data
    return digest


def _write_kernel(model: Model, name: str, blobs: dict[str, bytes]) -> KernelRow:
    calls = capture_calls(model.kernel(name), [{**model.constants(), **_CALL}])
    call = _keep(blobs, encode(calls.calls[0]))
    return KernelRow(calls.task_module, calls.entry, call)


def _look(trainer: Trainer) -> dict[str, Look]:
    """Look at the first orders of another method of the same settings."""
    if isinstance(trainer.form, ApartModel):
        return dict(trainer.form.looks)
    found: dict[str, Look] = {}
    codec = trainer.run.settings.transport
    for order in trainer.draw_orders():
        if order.kernel not in found:
            part = trainer.parts[order.part]
            found[order.kernel] = look_at(trainer.form, ask(order, codec), part)
    return found


def save_snapshot(snapshot: Snapshot) -> bytes:
    """Return parameters and buffers as safetensors."""
    both = {"parameters": snapshot.parameters, "buffers": snapshot.buffers}
    arrays = {
        f"{kind}/{name}": np.require(array, requirements="C")
        for kind, named in both.items()
        for name, array in named.items()
    }
    return save(arrays, {"version": str(snapshot.version)})


def load_snapshot(data: bytes, version: int = 0) -> Snapshot:
    """Return what `save_snapshot` saved (hostile), or raise ``STO-T012``."""
    kinds: dict[str, dict[str, Array]] = {"parameters": {}, "buffers": {}}
    try:
        for name, array in load(data).items():
            kind, _, own = name.partition("/")
            kinds[kind][own] = array
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        why = f"the first version is none: {type(error).__name__}"
        raise UsageError("STO-T012", why) from None
    return Snapshot(version, kinds["parameters"], kinds["buffers"])


@dataclass(frozen=True, slots=True)
class KernelText:
    """A kernel as text: nothing that could be called here."""

    source: str
    entry: str
    call: bytes  # encoded

    def __call__(self, kwargs: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - as a kernel
        """Refuse: a researcher's source is never executed by a coordinator."""
        raise InternalError("STO-T020", f"{self.entry} is text here")

    def capture(self, job: Job, captures: Captures) -> Captured:
        """Return the job's task: this text, the job's arguments, checks of our own."""
        call: Any = decode(self.call)
        _kwargs_of(call).update({n: _as_node(v) for n, v in job.arguments.items()})
        own: Kernel = array_models.evaluate  # any: of it nothing is used
        checks = captures.task(own, {}, job.check, job.alike)
        texts = (checks.validator_module, checks.init_entry, checks.compare_entry)
        calls = CapturedCalls(self.source, self.entry, *texts, (call,), has_stored=True)
        return calls.pack_one()


def _kwargs_of(call: Any) -> Any:  # noqa: ANN401 - nodes
    """Return a call's arguments, that of an object with a state or a function's."""
    return call.get("kwargs") if isinstance(call, dict) and "state" in call else call


def _as_node(value: object) -> Any:  # noqa: ANN401 - a node
    return StoredValue(value.digest, value.size) if isinstance(value, Handle) else value


@dataclass(frozen=True)
class HandedModel:
    """A model of which nothing can be computed here: see `stoilo.learn.core.models.Model`.

    Attributes:
        level: policy level of its kernels.
        start: version 0.
        kernels: name → its text.
        looks: what answers computed at home were like; stands for a look here.
    """

    level: str
    start: Snapshot
    kernels: Mapping[str, KernelText]
    looks: Mapping[str, Look] = field(default_factory=dict)

    def first(self) -> Snapshot:
        """Return version 0."""
        return self.start

    def kernel(self, name: str) -> Kernel:
        """Return the kernel's text."""
        if name not in self.kernels:
            raise UsageError("STO-T040", f"no kernel {name[:40]!r} was handed over")
        return self.kernels[name]

    def constants(self) -> Mapping[str, object]:
        """Return nothing: they stand in the kernels' calls."""
        return {}


def read_model(sheet: Sheet, blobs: Mapping[str, bytes]) -> HandedModel:
    """Return the model of a sheet (hostile); raises what decoding does."""
    kernels: dict[str, KernelText] = {}
    for name, row in sheet.kernels.items():
        kernels[name] = KernelText(row.source, row.entry, blobs[row.call])
        if not isinstance(_kwargs_of(decode(blobs[row.call])), dict):
            raise UsageError("STO-T040", f"kernel {name[:40]!r} has no call")
    first = load_snapshot(blobs[sheet.first])
    return HandedModel(sheet.level, first, kernels, sheet.looks)


def parse_sheet(data: bytes) -> Sheet:
    """Return a sheet (hostile), or raise ``STO-T040``; its settings are read, too."""
    try:
        sheet = msgspec.json.decode(data, type=Sheet)
        unpack_settings(sheet)
    except (msgspec.MsgspecError, RecursionError, ValueError, TypeError) as error:
        raise refuse(f"the sheet ({str(error)[:120]})") from None
    return sheet

"""A layout of cells: each member has some of a model's layers, batches pass through them.

What the kernels of `stoilo.learn.kernels.torch_models` compute, computed in a pipeline:

- `gradient`: micro-batches of one snapshot, a flush at the end. The sum is the kernel's but
  for rounding; BatchNorm takes its statistics of micro-batches.
- `local_steps` with the schedule ``1f1b``: PipeDream. No flush; a batch meets the same weights
  forward and backward (`stoilo.learn.cells.stash`), which at stage s of S are S - 1 - s
  updates old: not the kernel's steps but the *delayed rule*. With the other schedules each
  step is flushed, and the steps are the kernel's but for rounding.
- `evaluate`: forwards only.

What draws (dropout) draws by the job's seed, stage and batch: not what the kernel draws, and
the same when a batch is repeated.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from stoilo.core.errors import UsageError
from stoilo.learn.cells.links import Links
from stoilo.learn.cells.mail import Mail
from stoilo.learn.cells.schedules import (
    ONE_EACH,
    Places,
    input_versions,
    leave_out,
    order_all,
    span_of,
    versions_met,
)
from stoilo.learn.cells.stash import Saves, Stage, weigh
from stoilo.learn.cells.timeline import Kind, Span
from stoilo.learn.core.checkpoint import digest_of
from stoilo.learn.kernels import torch_models

kernels: Any = torch_models  # they travel as source, without types
_GRADIENT, _STEPS, _EVALUATE = "gradient", "local_steps", "evaluate"


@dataclass
class Pipeline:
    """Layers on members, in the order of ranks.

    The model is an `nn.Sequential`; between two stages goes one tensor of floats. Replicas of
    a stage take turns at batches and make one update of a batch each, weighted by samples;
    buffers are those of a stage's first replica.

    Attributes:
        cuts: before which layers the stages after the first begin.
        replicas: of each stage; one each when empty.
        schedule: ``1f1b``, ``gpipe`` or ``naive``; see above.
        micro: into how many pieces a batch is split where it is flushed.
        vertical: with ``1f1b``, all stages use the version of the first one.
        every: batches between two saves of `local_steps`, in the folder of the links; 0:
            none. A later execution of the same order goes on from the newest that all
            members have, with the same bits as if nothing had happened.
    """

    cuts: tuple[int, ...] = ()
    replicas: tuple[int, ...] = ()
    schedule: str = ONE_EACH
    micro: int = 4
    vertical: bool = False
    every: int = 0

    clock = staticmethod(time.monotonic)  # of the spans; another in its place

    def __post_init__(self) -> None:
        """Refuse what is no pipeline with ``STO-T040``."""
        self.replicas = self.replicas or (1,) * (len(self.cuts) + 1)
        self.places = Places(self.replicas)
        self.spans: list[Span] = []  # at rank 0, of the job that ended last
        if len(self.replicas) != len(self.cuts) + 1:
            raise UsageError(
                "STO-T040", f"{len(self.cuts)} cuts make {len(self.cuts) + 1} stages"
            )
        if self.micro < 1 or self.every < 0:
            raise UsageError(
                "STO-T040", f"micro is {self.micro}, every is {self.every}"
            )

    def execute(
        self, kernel: str, kwargs: dict[str, Any], links: Links
    ) -> dict[str, Any] | None:
        """Do this member's share of a job; rank 0 returns what the kernel returns.

        Raises:
            RuntimeError: gloo's; another member died, or was silent for too long.
            UsageError: ``STO-T040``, kernel, members or settings are not for this pipeline;
                ``STO-T001``, the model cannot be cut so.
        """
        if kernel not in {_GRADIENT, _STEPS, _EVALUATE}:
            raise UsageError("STO-T040", f"a pipeline has no kernel {kernel!r}")
        if links.size != self.places.members:
            raise UsageError(
                "STO-T040",
                f"{links.size} members for a pipeline of {self.places.members}",
            )
        kwargs = kernels.arrive(kwargs)
        learns = kernel != _EVALUATE
        with torch.random.fork_rng(devices=[]), torch.set_grad_enabled(learns):
            member = _Member(self, kernel, kwargs, links)
            member.run()
            given = member.mail.gather(member.results())
        return self._answer(kwargs, given) if given else None

    def _answer(
        self, kwargs: dict[str, Any], given: list[dict[str, Tensor]]
    ) -> dict[str, Any]:
        found = {name: one for part in given for name, one in part.items()}
        self.spans = [
            Span(stage, _KINDS[int(kind)], int(batch), begin, end, replica)
            for (stage, replica), part in zip(self.places.all(), given, strict=True)
            for kind, batch, begin, end in part["spans"].tolist()
        ]
        model = kwargs["model"]
        for name, b in model.named_buffers():
            b.data = found.get(f"buffer {name}", b.data)
        tensors = {
            name: found[f"tensor {name}"]
            for name, _ in kernels.trained(model)
            if f"tensor {name}" in found
        }
        # In the order of batches, whichever replica had them: the kernel's own sum.
        rows = sorted(row for part in given for row in part["losses"].tolist())
        samples = int(sum(row[1] for row in rows))
        right = int(min(sum(row[3] for row in rows), samples))
        labels = [found.get(f"labels {int(row[0])}") for row in rows]
        if told := [one for one in labels if one is not None]:
            tensors["labels"] = torch.cat(told)
        total = sum(row[2] for row in rows)
        whole: dict[str, Any] = kernels.answer(
            kwargs, model, samples, total, right, tensors
        )
        return whole


_KINDS: tuple[Kind, ...] = ("F", "B", "wait", "sync")


def cut(model: nn.Module, cuts: Sequence[int]) -> list[nn.Sequential]:
    """Return the stages of a model, with the names that its layers have there.

    Raises:
        UsageError: ``STO-T001``, the model is not a plain chain of layers, or two stages
            share something; ``STO-T040``, the cuts are not between layers.
    """
    if not isinstance(model, nn.Sequential) or (
        type(model).forward is not nn.Sequential.forward
    ):
        raise UsageError("STO-T001", "only an nn.Sequential can be cut into stages")
    layers = list(model.named_children())
    ends = [0, *cuts, len(model)]
    if any(end <= begin for begin, end in itertools.pairwise(ends)):
        raise UsageError(
            "STO-T040", f"cuts {tuple(cuts)} of a model of {len(model)} layers"
        )
    stages = [
        nn.Sequential(OrderedDict(layers[begin:end]))
        for begin, end in itertools.pairwise(ends)
    ]
    own = sum(len([*s.parameters(), *s.buffers()]) for s in stages)
    if len(layers) < len(model) or own > len([*model.parameters(), *model.buffers()]):
        raise UsageError("STO-T001", "a layer or weight is shared between stages")
    return stages


class _Batches(NamedTuple):
    rows: list[Tensor]  # of each, which samples
    flush: int  # so many make one update of every stage; 0: see `order_all`


def _split(kernel: str, pipeline: Pipeline, kwargs: dict[str, Any], n: int) -> _Batches:
    settings = kwargs["settings"]
    if kernel != _STEPS:
        pieces = torch.arange(n).tensor_split(min(pipeline.micro, n))
        return _Batches(list(pieces), len(pieces))
    dealt = kernels.deal(n, settings["batch"] or n, settings["seed"])
    steps = [torch.from_numpy(next(dealt)) for _ in range(settings["steps"])]
    if pipeline.schedule == ONE_EACH:
        return _Batches(steps, 0)
    least = min([pipeline.micro, *map(len, steps)])
    return _Batches([p for step in steps for p in step.tensor_split(least)], least)


class _Member:
    """One member's share of one job."""

    def __init__(
        self, pipeline: Pipeline, kernel: str, kwargs: dict[str, Any], links: Links
    ) -> None:
        self.kernel, self.kwargs, places = kernel, kwargs, pipeline.places
        self.places, self.rank, self.clock = places, links.rank, pipeline.clock
        self.number, self.replica = places.find(links.rank)
        self.is_last = self.number == len(places.replicas) - 1
        self.x, self.y = kernels.choose(kwargs)
        self.rows, flush = _split(kernel, pipeline, kwargs, len(self.x))
        sizes = [len(rows) for rows in self.rows]
        self.span = span_of(places, self.number, flush)
        self.weights = weigh(sizes, self.span) if kernel == _STEPS else sizes
        module = cut(kwargs["model"], pipeline.cuts)[self.number]
        kernels.restore({**kwargs, "model": module})
        learns = kwargs["settings"] if kernel == _STEPS else {}
        self.stage = Stage(module, learns)
        self.mail = Mail(links, sizes)
        orders = order_all(pipeline.schedule, places, len(sizes), flush)
        self.ops = orders[links.rank]
        self.versions = (
            input_versions(places, self.number, orders, flush)
            if pipeline.vertical
            else versions_met(self.ops)
        )
        if kernel != _STEPS:
            self.versions = dict.fromkeys(self.versions, 0)
        if kernel == _EVALUATE:
            self.ops = tuple(op for op in self.ops if op.kind == "F")
            module.eval()
        self.losses: list[list[float]] = []  # batch, samples, sum, right
        self.labels: dict[int, Tensor] = {}
        self.spans: list[list[float]] = []
        saved = pipeline.every and kernel == _STEPS
        self.saves = self._find_saves(pipeline, flush) if saved else None

    def _find_saves(self, pipeline: Pipeline, flush: int) -> Saves:
        folder = self.mail.links.folder
        if folder is None:
            raise UsageError("STO-T040", "the cell's links name no folder for saves")
        stages = range(len(self.places.replicas))
        once = math.lcm(*(span_of(self.places, one, flush) for one in stages))
        every = math.ceil(pipeline.every / once) * once
        # Members are apart by what is in flight at the first stage.
        most = 2 + (2 * self.places.members + once) // every
        identity = self._identify(pipeline)
        return Saves(folder / f"pipeline-{self.rank}", identity, every, most)

    def _identify(self, pipeline: Pipeline) -> str:
        """Return what tells this member's share of this job from others."""
        arrays = {f"x {name}": one for name, one in self.kwargs["parameters"].items()}
        arrays |= {f"b {name}": one for name, one in self.kwargs["buffers"].items()}
        arrays |= {"data x": self.x, "data y": self.y}
        told = {
            "pipeline": pipeline,
            "settings": self.kwargs["settings"],
            "version": self.kwargs["version"],
            "arrays": {n: digest_of(np.asarray(one)) for n, one in arrays.items()},
        }
        return hashlib.sha256(msgspec.json.encode(told, order="sorted")).hexdigest()

    def run(self) -> None:
        """Do all operations, or those that are left after an earlier process."""
        if self.saves is None:
            self._do()
            return
        try:
            self._take_up(self.saves)
            self._do()
        finally:
            self.saves.close()

    def _take_up(self, saves: Saves) -> None:
        done = self.mail.agree(saves.open(), saves.most)
        if done:
            kept = saves.read(done)
            self.stage.take_up(kept)
            self.losses = kept.losses
        self.ops = leave_out(self.ops, done, self.span)

    def _do(self) -> None:
        if self.number:
            giver = self.number - 1
            coming = [op.number for op in self.ops if op.kind == "F"]
            self.mail.expect([(b, self.places.rank(giver, b)) for b in coming])
        deeds = {"F": self._forward, "B": self._backward, "U": self._update}
        for op in self.ops:
            deeds[op.kind](op.number)
        self.mail.settle()

    def _note(self, kind: str, batch: int, begin: float) -> None:
        row = [_KINDS.index(kind), batch, begin, self.clock()]
        self.spans.append(row)

    def _forward(self, batch: int) -> None:
        begin = self.clock()
        if self.number:
            given = self.mail.take(batch)
            self._note("wait", batch, begin)
        else:
            given = kernels.take(self.x, self.rows[batch])
        begin = self.clock()
        if self.saves is not None:
            self.saves.mark(batch, self.stage)
        made = self._compute(batch, given)
        self._note("F", batch, begin)
        if not self.is_last:
            self.mail.send_on(batch, made, self.places.rank(self.number + 1, batch))

    def _compute(self, batch: int, given: Tensor) -> Tensor:
        seed, rows = self.kwargs["settings"].get("seed"), self.rows[batch]
        if seed is not None:
            drawn = np.random.SeedSequence((seed, self.number, batch))
            torch.manual_seed(int(drawn.generate_state(1)[0]))
        if self.kernel != _EVALUATE:
            kernels.prepare(self.stage.module, len(rows))
        made = self.stage.forward(batch, given, self.versions[batch])
        if self.is_last:
            loss, right = kernels.judge(
                self.kwargs, made, kernels.take(self.y, rows), len(rows)
            )
            row = [batch, len(rows), len(rows) * loss.item(), right]
            self.losses.append(row)
            if self.kernel != _EVALUATE:
                self.stage.end_in(batch, loss)
            elif right >= 0 and self.kwargs["settings"].get("labels"):
                self.labels[batch] = made.argmax(1)
        return made

    def _backward(self, batch: int) -> None:
        begin, slope = self.clock(), None
        if not self.is_last:
            slope = self.mail.take_back(batch)
            self._note("wait", batch, begin)
        begin = self.clock()
        back = self.stage.backward(batch, slope, self.weights[batch])
        self._note("B", batch, begin)
        if self.number:
            self.mail.send_back(batch, back, self.places.rank(self.number - 1, batch))

    def _update(self, update: int) -> None:
        begin = self.clock()
        if self.places.replicas[self.number] > 1:
            ranks, sums = self.places.ranks(self.number), self.stage.read_sums()
            self.stage.sums = self.mail.add_up(sums, ranks, update)
            self._note("sync", update, begin)
        if self.kernel != _STEPS:
            return
        self.stage.update()
        done = (update + 1) * self.span
        following = done + (self.replica - done) % self.places.replicas[self.number]
        self.stage.forget(self.versions.get(following, self.stage.version))
        if self.saves is not None and done < len(self.rows):
            self.saves.save(done, self.stage, self.losses)

    def results(self) -> dict[str, Tensor]:
        """Return what rank 0 needs of this member."""
        found = {
            "spans": torch.tensor(self.spans, dtype=torch.float64).view(-1, 4),
            "losses": torch.tensor(self.losses, dtype=torch.float64).view(-1, 4),
        }
        found |= {f"labels {batch}": one for batch, one in self.labels.items()}
        if self.replica:
            return found
        buffers = self.stage.module.named_buffers()
        found |= {f"buffer {name}": kernels.widen(b) for name, b in buffers}
        own = self.stage.results() if self.kernel == _STEPS else self.stage.sums
        return found | {f"tensor {name}": one for name, one in own.items()}

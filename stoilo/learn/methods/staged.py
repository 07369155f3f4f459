"""A pipeline of tasks: stages of a model, several groups of samples in flight (PipeDream).

An activation stays at the place as the answer of one task and the next one names it. Versions
of a stage's weights never change, so those that orders name *are* the stash; a backward order
names the one that its group met going forward and computes the stage once more.

The delay is the schedule's and not the volunteers': at stage s, with K groups in flight, group
b meets the weights after ``max(0, b - max(0, K - 1 - s))`` groups' updates, and its own goes to
the newest, in the groups' order. So the weights are, to the last bit, those of one process that
follows ``w_s ← w_s - η·∇f_b(w_0^(b-K+1), w_1^(b-K+2), …)`` (Narayanan et al. 2019, §3.3),
whoever answers, and when. K = 1 is plain descent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import Order, Reply, Snapshot, Update
from stoilo.learn.core.states import Plain
from stoilo.learn.core.tensors import Array, Form, Tensors, forms_of
from stoilo.learn.methods.base import (
    MethodBase,
    Outcome,
    Piece,
    derive_order_seed,
    shuffle,
)
from stoilo.learn.methods.schedules import read_factor
from stoilo.learn.methods.synchronous import sum_gradients

if TYPE_CHECKING:
    from stoilo.learn.methods.optimizers import Optimizer


@dataclass(frozen=True, slots=True)
class StagedSettings:
    """How a pipeline of tasks trains.

    Attributes:
        epochs: passes over all data.
        group: samples of one task; their gradients are summed.
        batch: samples of a micro-batch inside of it, which bounds memory; 0: all.
        in_flight: groups under way; 0: as many as stages, 1: no delay and no pipeline.
        seed: of the groups' order and of what draws in the model.
    """

    epochs: int = 1
    group: int = 64
    batch: int = 0
    in_flight: int = 0
    seed: int = 0


class Staged(MethodBase):
    """Stages trained by one group after the other, several of them under way.

    Args:
        start: parameters of all stages, ``0.…`` to ``S-1.…``, no buffers.
        parts: sizes of the data parts: of inputs, then of targets, then of one that is
            empty, as a stage between needs neither; plain parts for a single stage.
        outputs: of one sample, the form of what each stage but the last gives.
        optimizer: its steps are by stage; what it keeps is by parameter.
    """

    kept = MethodBase.kept | {
        "_stash": dict[str, dict[str, Array]],
        "_applied": list[int],
        "_steps": dict[int, int],
        "_out": set[str],
        "_held": dict[str, Reply],
        "_slopes": dict[int, Array],
        "_loss": float,
    }
    parts = ("optimizer",)

    def __init__(
        self,
        start: Snapshot,
        parts: Sequence[int],
        outputs: Sequence[Form],
        settings: StagedSettings,
        optimizer: Optimizer,
    ) -> None:
        super().__init__(start)
        self.settings, self.optimizer = settings, optimizer
        self._outputs, self._last = tuple(outputs), len(outputs)
        self._data = (len(parts) - 1) // 2 if outputs else len(parts)
        self._sizes = tuple(parts[: self._data])
        self._depth = settings.in_flight or self._last + 1
        self._of_epoch = sum(-(-size // settings.group) for size in self._sizes)
        if self._of_epoch < self._depth:  # an answer would end two epochs
            raise UsageError(
                "STO-T040",
                f"{self._of_epoch} groups an epoch are fewer than {self._depth} in flight",
            )
        self._pieces: tuple[int, list[Piece]] = (-1, [])
        self._stash: dict[str, dict[str, Array]] = {}  # "stage/version", not the newest
        self._applied = [0] * (
            self._last + 1
        )  # updates of each stage: its newest version
        self._steps: dict[
            int, int
        ] = {}  # of a group under way, tasks that are answered
        self._out: set[str] = set()
        self._held: dict[str, Reply] = {}  # backward answers that wait for their turn
        self._slopes: dict[int, Array] = {}  # group → slope for its next backward order
        self._loss, self._turn = 0.0, 0  # the newest group's; whose update is made

    @property
    def groups(self) -> int:
        """How many groups there are in all epochs."""
        return self.settings.epochs * self._of_epoch

    @property
    def finished(self) -> bool:
        """Whether the last group has counted at the first stage."""
        return self._applied[0] == self.groups

    @property
    def factor(self) -> float:
        """The schedule's factor: by the group, so that it hangs on no arrival."""
        return read_factor(self.schedule, self._turn)

    def piece(self, group: int) -> Piece:
        """Return the samples of a group: drawn anew in each epoch."""
        epoch, place = divmod(group, self._of_epoch)
        if self._pieces[0] != epoch:
            self._pieces = epoch, self._deal(epoch)
        return self._pieces[1][place]

    def _deal(self, epoch: int) -> list[Piece]:
        width, found = self.settings.group, list[Piece]()
        for part, size in enumerate(self._sizes):
            order = shuffle(size, self.settings.seed, epoch, part).tolist()
            cut = [tuple(order[i : i + width]) for i in range(0, size, width)]
            found += [Piece(part, len(rows), rows) for rows in cut]
        return found

    def version(self, stage: int, group: int) -> int:
        """Return which version of a stage a group meets, on both of its ways."""
        return max(0, group - max(0, self._depth - 1 - stage))

    def _weights(self, stage: int, version: int) -> Tensors:
        if version < self._applied[stage]:
            return self._stash[f"{stage}/{version}"]
        newest, place = self._snapshot.parameters, f"{stage}."
        return {name: a for name, a in newest.items() if name.startswith(place)}

    def _next(self, group: int) -> str:
        """Return a group's next order; none when it is back, or waits for an update."""
        step = self._steps.get(group, 0)
        stage = min(step, 2 * self._last - step)
        if stage < 0 or self.version(stage, group) > self._applied[stage]:
            return ""
        key = f"g{group}/{'b' if step >= self._last else 'f'}{stage}"
        return "" if key in self._out else key

    def _draw(self, room: int) -> Sequence[str]:
        first = self._applied[0]
        window = range(first, min(first + self._depth, self.groups))
        ready = [key for group in window if (key := self._next(group))][:room]
        self._out |= set(ready)
        return ready

    def _order(self, key: str) -> Order:
        group, stage, is_back = _read(key)
        piece, version = self.piece(group), self.version(stage, group)
        weights = dict(self._weights(stage, version))
        settings: dict[str, Plain] = {
            "stage": stage,
            "seed": derive_order_seed(self.settings.seed, f"g{group}/s{stage}"),
            "batch": self.settings.batch,
        }
        # A single stage is the first and the last
        places = {self._last: self._data + piece.part, 0: piece.part}
        part = places.get(stage, 2 * self._data)
        rows = piece.rows if stage in places else None
        slopes = (
            {"output": self._slopes[group]} if is_back and stage < self._last else {}
        )
        inputs = {"input": f"g{group}/f{stage - 1}"} if stage else {}
        forms = {n: self._form(stage - 1, piece.samples) for n in inputs}
        forms |= forms_of(weights)
        if not is_back:
            forms = {"output": self._form(stage, piece.samples)}
        return Order(
            key,
            "backward" if is_back else "forward",
            # One number for each stage's version in the run
            Snapshot(version * (self._last + 1) + stage, weights),
            *(part, piece.samples, settings, rows, slopes, inputs),
            stays=not is_back,
            forms=forms,
        )

    def _form(self, stage: int, samples: int) -> Form:
        one = self._outputs[stage]
        return Form(one.dtype, (samples, *one.shape))

    def lose(self, order: Order) -> None:
        """Order it again."""
        self._out.discard(order.key)

    def take(self, order: Order, reply: Reply) -> Update:
        """Let an answer count; the last stage's alone says something of samples' losses."""
        group, stage, is_back = _read(order.key)
        if stage == self._last:
            self._loss = reply.loss_sum / reply.samples
        stale = is_back * (self._applied[stage] - self.version(stage, group))
        update = super().take(order, reply)
        samples = update.samples * (stage == self._last)  # each is counted once
        return replace(update, loss=self._loss, samples=samples, staleness=stale)

    def _count(self, order: Order, reply: Reply, staleness: int) -> Outcome:  # noqa: ARG002 - see `take`
        group, stage, is_back = _read(order.key)
        epoch, before = group // self._of_epoch, self._applied[0] // self._of_epoch
        if order.key not in self._out:
            return Outcome(applied=False, epoch=epoch)
        self._out.remove(order.key)
        self._steps[group] = self._steps.get(group, 0) + 1
        if not is_back:
            return Outcome(applied=True, epoch=epoch)
        sums = dict(reply.tensors)
        self._slopes.pop(group, None)
        if stage:
            self._slopes[group] = sums.pop("input")
        self._held[order.key] = replace(reply, tensors=sums)
        while held := self._held.pop(f"g{self._applied[stage]}/b{stage}", None):
            self._apply(stage, held)
        ended = self._applied[0] // self._of_epoch > before
        return Outcome(
            applied=True, epoch=epoch, ended=ended, spent=(*order.inputs.values(),)
        )

    def _apply(self, stage: int, reply: Reply) -> None:
        """Make a stage's next update, and let go of versions that nobody will name."""
        group = self._turn = self._applied[stage]
        mean = {n: a / reply.samples for n, a in sum_gradients([reply]).items()}
        self._stash[f"{stage}/{group}"] = dict(self._weights(stage, group))
        moved, version = self._move_by(self.optimizer, mean), self._snapshot.version + 1
        self._snapshot = replace(self._snapshot, version=version, parameters=moved)
        self._applied[stage] += 1
        for old in range(self.version(stage, group), self.version(stage, group + 1)):
            del self._stash[f"{stage}/{old}"]
        if stage == 0:
            del self._steps[group]


def _read(key: str) -> tuple[int, int, bool]:
    """Return group and stage of an order, and whether it goes backward."""
    group, _, place = key.partition("/")
    return int(group[1:]), int(place[1:]), place[0] == "b"

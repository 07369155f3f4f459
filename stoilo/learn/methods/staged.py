"""A pipeline of tasks: stages of a model, several groups of samples in flight (PipeDream).

Volunteers cannot send each other anything, so an activation stays at the place as the answer
of one task and the next one names it. A version of a stage's weights never changes: all that
orders of a stage name *are* the stash. A backward order names the version that its group met
going forward and computes the stage once more, so no volunteer keeps anything.

The delay is the schedule's and not the volunteers': at stage s of S, with K groups in flight,
group b meets the weights after the updates of groups 0 to ``b - max(0, K - 1 - s) - 1``, and
its own update goes to the newest, in the order of groups. So the weights are, to the last bit,
those of one process that follows ``w_s ← w_s - η·∇f_b(w_0^(b-K+1), …, w_s^(b-K+1+s), …)``
(Narayanan et al. 2019, §3.3), whoever answers, and when. K = 1 is plain descent.
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

_INPUT = "input"  # of a backward answer: the slope that goes to the stage before


@dataclass(frozen=True, slots=True)
class StagedSettings:
    """How a pipeline of tasks trains.

    Attributes:
        epochs: passes over all data.
        group: samples of one task; their gradients are summed. So many that a task takes
            minutes: each costs two journeys of its activations.
        batch: samples of a micro-batch inside of it, which bounds memory; 0: all.
        in_flight: groups under way; 0: as many as stages, 1: no delay and no pipeline.
        seed: of the groups' order and of what draws in the model.
    """

    epochs: int = 1
    group: int = 64
    batch: int = 0
    in_flight: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what trains nothing."""
        if min(self.epochs, self.group) < 1 or min(self.batch, self.in_flight) < 0:
            raise UsageError("STO-T040", f"a pipeline cannot train by {self}")


@dataclass(frozen=True, slots=True)
class Task:
    """A pass of one group through one stage."""

    group: int
    stage: int
    is_back: bool

    @property
    def key(self) -> str:
        """Its order's key."""
        return f"g{self.group}/{'b' if self.is_back else 'f'}{self.stage}"


class Staged(MethodBase):
    """Stages trained one group after the other, several of them under way.

    Args:
        start: parameters of all stages, ``0.…`` to ``S-1.…``, no buffers.
        parts: sizes of the data parts that orders name: see `count_parts`.
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
        self._outputs, self._stages = tuple(outputs), len(outputs) + 1
        self._data = (len(parts) - 1) // 2 if outputs else len(parts)
        self._sizes = tuple(parts[: self._data])
        self._depth = settings.in_flight or self._stages
        self._of_epoch = sum(-(-size // settings.group) for size in self._sizes)
        if self._of_epoch < self._depth:
            raise UsageError(
                "STO-T040",
                f"{self._of_epoch} groups an epoch are fewer than {self._depth} in flight",
                hint="smaller groups, or fewer in flight",
            )
        self._pieces: tuple[int, tuple[Piece, ...]] = (-1, ())
        self._stash: dict[str, dict[str, Array]] = {}  # "stage/version", not the newest
        self._applied = [0] * self._stages  # updates of each stage: its newest version
        self._steps: dict[
            int, int
        ] = {}  # of a group under way, tasks that are answered
        self._out: set[str] = set()
        self._held: dict[str, Reply] = {}  # backward answers that wait for their turn
        self._slopes: dict[int, Array] = {}  # group → slope for its next backward order
        self._loss = 0.0  # the newest group's
        self._turn = 0  # the group whose update is made

    @property
    def groups(self) -> int:
        """How many groups there are in all epochs."""
        return self.settings.epochs * self._of_epoch

    @property
    def finished(self) -> bool:
        """Whether the last group has come back to the first stage, and counted there."""
        return self._applied[0] == self.groups

    @property
    def stashed(self) -> list[int]:
        """How many versions of each stage are kept, the newest among them."""
        return [
            1 + sum(name.startswith(f"{stage}/") for name in self._stash)
            for stage in range(self._stages)
        ]

    def piece(self, group: int) -> Piece:
        """Return the samples of a group: drawn anew in each epoch."""
        epoch, place = divmod(group, self._of_epoch)
        if self._pieces[0] != epoch:
            self._pieces = epoch, tuple(self._deal(epoch))
        return self._pieces[1][place]

    def _deal(self, epoch: int) -> list[Piece]:
        width = self.settings.group
        found = []
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

    def _next(self, group: int) -> Task | None:
        """Return a group's next task; None when it is back, or must wait for an update."""
        step, last = self._steps.get(group, 0), self._stages - 1
        if step > 2 * last:
            return None
        stage = min(step, 2 * last - step)
        task = Task(group, stage, step >= last)
        is_there = self.version(stage, group) <= self._applied[stage]
        return task if is_there and task.key not in self._out else None

    def _draw(self, room: int) -> Sequence[str]:
        first = self._applied[0]
        window = range(first, min(first + self._depth, self.groups))
        ready = [task.key for task in map(self._next, window) if task is not None]
        self._out |= set(ready[:room])
        return ready[:room]

    def _order(self, key: str) -> Order:
        task = _read(key)
        group, stage, last = task.group, task.stage, self._stages - 1
        piece, version = self.piece(group), self.version(stage, group)
        seed = derive_order_seed(self.settings.seed, f"g{group}/s{stage}")
        settings: dict[str, Plain] = {"stage": stage, "seed": seed}
        weights = dict(self._weights(stage, version))
        is_end = stage in {0, last}
        order = Order(
            key,
            "backward" if task.is_back else "forward",
            Snapshot(version * self._stages + stage, weights),  # the run's own number
            self._part_of(stage, piece.part),
            piece.samples,
            settings | {"batch": self.settings.batch},
            piece.rows if is_end else None,
            {"output": self._slopes[group]} if stage < last and task.is_back else {},
            {_INPUT: Task(group, stage - 1, is_back=False).key} if stage else {},
        )
        if not task.is_back:
            output = self._form(stage, piece.samples)
            return replace(order, stays=True, forms={"output": output})
        slope = {_INPUT: self._form(stage - 1, piece.samples)} if stage else {}
        return replace(order, forms=forms_of(weights) | slope)

    def _part_of(self, stage: int, part: int) -> int:
        """Return the data that a stage needs: inputs, targets, or none."""
        if stage == 0:
            return part
        return self._data + part if stage == self._stages - 1 else 2 * self._data

    def _form(self, stage: int, samples: int) -> Form:
        one = self._outputs[stage]
        return Form(one.dtype, (samples, *one.shape))

    def lose(self, order: Order) -> None:
        """Order it again."""
        self._out.discard(order.key)

    def take(self, order: Order, reply: Reply) -> Update:
        """Let an answer count; only the last stage's says something of samples' losses."""
        task, newest = _read(order.key), self._applied[:]
        is_last = task.stage == self._stages - 1
        if is_last:
            self._loss = reply.loss_sum / reply.samples
        update = super().take(order, reply)
        used = self.version(task.stage, task.group)
        samples = update.samples if is_last else 0  # each is counted once
        stale = newest[task.stage] - used if task.is_back else 0
        return replace(update, loss=self._loss, samples=samples, staleness=stale)

    def _count(self, order: Order, reply: Reply, staleness: int) -> Outcome:  # noqa: ARG002 - see `take`
        task = _read(order.key)
        epoch = task.group // self._of_epoch
        if order.key not in self._out:
            return Outcome(applied=False, epoch=epoch)
        self._out.remove(order.key)
        self._steps[task.group] = self._steps.get(task.group, 0) + 1
        if not task.is_back:
            return Outcome(applied=True, epoch=epoch)
        self._slopes.pop(task.group, None)
        sums = dict(reply.tensors)
        if task.stage:
            self._slopes[task.group] = sums.pop(_INPUT)
        self._held[order.key] = replace(reply, tensors=sums)
        before = self._applied[0] // self._of_epoch
        self._apply(task.stage)
        ended = self._applied[0] // self._of_epoch > before
        spent = tuple(order.inputs.values())
        return Outcome(applied=True, epoch=epoch, ended=ended, spent=spent)

    def _apply(self, stage: int) -> None:
        """Make the updates of a stage whose turn has come: each group's once, in order."""
        while True:
            group = self._applied[stage]
            reply = self._held.pop(Task(group, stage, is_back=True).key, None)
            if reply is None:
                return
            self._turn = group
            mean = {n: a / reply.samples for n, a in sum_gradients([reply]).items()}
            self._stash[f"{stage}/{group}"] = dict(self._weights(stage, group))
            moved = self._move_by(self.optimizer, mean)
            version = self._snapshot.version + 1
            self._snapshot = replace(self._snapshot, version=version, parameters=moved)
            self._applied[stage] += 1
            self._forget(stage)
            if stage == 0:
                self._steps.pop(group, None)

    def _forget(self, stage: int) -> None:
        """Let go of the versions that no group still to come back has met."""
        least = self.version(stage, self._applied[stage])
        for name in [*self._stash]:
            place, _, version = name.partition("/")
            if place == str(stage) and int(version) < least:
                del self._stash[name]

    @property
    def factor(self) -> float:
        """The schedule's factor: by the group, so that it hangs on no arrival."""
        return read_factor(self.schedule, self._turn)


def _read(key: str) -> Task:
    group, _, place = key.partition("/")
    return Task(int(group[1:]), int(place[1:]), place[0] == "b")


def count_parts(sizes: Sequence[int], stages: int) -> list[int]:
    """Return the sizes of the parts that orders name: of inputs, of targets, of neither.

    A stage between has no use for data, the first none for targets: nobody fetches them.
    """
    return [*sizes, *sizes, 1] if stages > 1 else [*sizes]

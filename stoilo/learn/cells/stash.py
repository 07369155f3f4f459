"""One stage of a pipeline: its newest weights, and the older ones that batches still need.

A version of the weights is a dict of tensors that never change: an update makes new ones. What
a batch met going forward is stashed by reference (its graph holds the very tensors), so its
gradient is the exact one at those weights, and batches of one version share them. Gradients
are applied to the newest weights. Running values of BatchNorm are not stashed: they follow the
forwards, in the order of batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from stoilo.learn.core.checkpoint import Checkpoint
from stoilo.learn.core.states import State, join_states, parse, render, select
from stoilo.learn.core.tensors import Array
from stoilo.learn.kernels import torch_models

kernels: Any = torch_models  # they travel as source, without types


class _Flight(NamedTuple):
    """A batch between its forward and its backward."""

    given: Tensor  # what came in
    made: Tensor  # what went out, with its graph; at the last stage the loss
    weights: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Kept:
    """All of a stage that a later process needs to go on from `version`, as arrays."""

    version: int
    weights: dict[str, dict[str, Array]]  # version → name → array
    optimizer: dict[str, dict[str, Array]]  # index of the parameter → what → array
    sums: dict[str, Array]
    buffers: dict[str, Array]
    losses: list[list[float]]  # of the batches that are done, as the member notes them


class Stage:
    """Layers, their weights' versions and the batches in flight.

    Args:
        module: the layers, with the first weights in them.
        settings: of the kernel `local_steps`; without a ``rate`` nothing is ever updated.
    """

    def __init__(self, module: nn.Module, settings: Mapping[str, Any]) -> None:
        self.module = module
        self.version = 0  # how many updates were made
        self.sums: dict[str, Tensor] = {}  # of the gradients since, see `take_sums`
        self.total: dict[str, Tensor] = {}  # of all updates' gradients, where asked for
        self._trained: dict[str, nn.Parameter] = dict(kernels.trained(module))
        learns = bool(self._trained) and "rate" in settings
        self._optimizer = kernels.make_optimizer(module, settings) if learns else None
        self._adds_up = settings.get("give") == "sum"
        self._pull = settings.get("proximal", 0.0)
        self._versions = {0: self._read_newest()}
        self._start = self._versions[0]
        self._flying: dict[int, _Flight] = {}
        # A layer that writes over its input must not write over what is stashed.
        self._copies = any(getattr(m, "inplace", False) for m in module.modules())

    def _read_newest(self) -> dict[str, Tensor]:
        # `data`, for what is detached would count the optimiser's writes as its own.
        return {n: p.data.requires_grad_() for n, p in self._trained.items()}

    def forward(self, batch: int, given: Tensor, version: int) -> Tensor:
        """Return what the layers make of a batch at a version of the weights."""
        if torch.is_grad_enabled() and given.is_floating_point():
            given = given.detach().requires_grad_()
        weights = self._versions[version]
        came = given.clone() if self._copies else given
        made: Tensor = functional_call(self.module, dict(weights), (came,))
        if torch.is_grad_enabled():
            self._flying[batch] = _Flight(given, made, weights)
        return made

    def end_in(self, batch: int, loss: Tensor) -> None:
        """Say what a batch's output became: its backward begins there."""
        self._flying[batch] = self._flying[batch]._replace(made=loss)

    def backward(self, batch: int, slope: Tensor | None, weight: float) -> Tensor:
        """Add a batch's gradient to the sums, `weight` times; return its input's.

        Args:
            batch: the oldest in flight.
            slope: of the loss by the stage's output; None where that is the loss.
            weight: of the batch in the update.
        """
        given, made, weights = self._flying.pop(batch)
        names, leaves = list(weights), [*weights.values()]
        if given.requires_grad:
            names, leaves = [*names, ""], [*leaves, given]
        found: dict[str, Tensor] = {}
        if made.requires_grad and leaves:
            slopes: tuple[Tensor | None, ...] = torch.autograd.grad(
                made, leaves, slope, allow_unused=True
            )
            found = {n: g for n, g in zip(names, slopes, strict=True) if g is not None}
        back = found.pop("", None)
        for name, one in found.items():
            part = kernels.widen(kernels.dense(one))
            part = part if weight == 1 else part * weight
            self.sums[name] = self.sums[name] + part if name in self.sums else part
        return torch.zeros_like(given) if back is None else back

    def read_sums(self) -> dict[str, Tensor]:
        """Return the sums with zeros where a weight had no gradient: alike at replicas."""
        return {
            name: self.sums[name]
            if name in self.sums
            else kernels.widen(torch.zeros_like(p))
            for name, p in self._trained.items()
        }

    def update(self) -> None:
        """Apply the sums to the newest weights; the older versions stay as they are."""
        self.version += 1
        if self._optimizer is not None:
            for name, p in self._trained.items():
                self._set_gradient(name, p)
                p.data = p.data.clone()
            self._optimizer.step()
        self.sums = {}
        self._versions[self.version] = self._read_newest()

    def _set_gradient(self, name: str, p: nn.Parameter) -> None:
        found = self.sums.get(name)
        if self._adds_up and found is not None:
            before = self.total.get(name)
            self.total[name] = found if before is None else before + found
        p.grad = None if found is None else found.to(p.dtype)
        if self._pull:
            toward = self._pull * (p.detach() - self._start[name].detach())
            p.grad = toward if p.grad is None else p.grad + toward

    def forget(self, below: int) -> None:
        """Drop the versions before one, which no further forward will ask for."""
        for version in [v for v in self._versions if v < min(below, self.version)]:
            del self._versions[version]

    def results(self) -> dict[str, Tensor]:
        """Return the newest weights, or the sum of all gradients where that is asked for."""
        if self._adds_up:
            return self.total
        return {name: kernels.widen(p.detach()) for name, p in self._trained.items()}

    def read_buffers(self) -> dict[str, Array]:
        """Return copies of running values and the like."""
        named = dict(self.module.named_buffers())
        return {name: _as_array(b.clone()) for name, b in named.items()}

    def keep(self, buffers: Mapping[str, Array], losses: list[list[float]]) -> Kept:
        """Return all that is needed to go on from here, but for the first batch's number.

        Args:
            buffers: as they were before the first batch that is not done.
            losses: of those that are.
        """
        state = self._optimizer.state_dict()["state"] if self._optimizer else {}
        return Kept(
            self.version,
            {str(v): _as_arrays(weights) for v, weights in self._versions.items()},
            # The optimiser changes them in place: copies.
            {str(i): _as_arrays(_clone(one)) for i, one in state.items()},
            _as_arrays(self.total),
            dict(buffers),
            losses,
        )

    def take_up(self, kept: Kept) -> None:
        """Go on from what another process kept, of the same job."""
        self.version = kept.version
        for name, array in kept.weights[str(kept.version)].items():
            p = self._trained[name]
            p.data = torch.tensor(array).to(p.dtype)
        self._versions = {
            int(version): self._as_weights(arrays)
            for version, arrays in kept.weights.items()
        }
        self._versions[kept.version] = self._read_newest()
        self.total = {name: torch.tensor(array) for name, array in kept.sums.items()}
        for name, b in self.module.named_buffers():
            b.data = torch.tensor(kept.buffers[name]).to(b.dtype)
        if self._optimizer is not None:
            states = {
                int(i): {what: torch.tensor(array) for what, array in one.items()}
                for i, one in kept.optimizer.items()
            }
            whole = {**self._optimizer.state_dict(), "state": states}
            self._optimizer.load_state_dict(whole)

    def _as_weights(self, arrays: Mapping[str, Array]) -> dict[str, Tensor]:
        return {
            name: torch.tensor(array).to(self._trained[name].dtype).requires_grad_()
            for name, array in arrays.items()
        }


def _clone(tensors: Mapping[str, Any]) -> dict[str, Tensor]:
    return {what: t.clone() for what, t in tensors.items() if isinstance(t, Tensor)}


def _as_array(tensor: Tensor) -> Array:
    array: Array = kernels.widen(tensor.detach()).numpy()
    return array


def _as_arrays(tensors: Mapping[str, Tensor]) -> dict[str, Array]:
    return {name: _as_array(tensor) for name, tensor in tensors.items()}


def weigh(sizes: Iterable[int], span: int) -> list[float]:
    """Return each batch's weight in its update, by their numbers of samples; 1.0 alone."""
    sizes = list(sizes)
    totals = [sum(sizes[at : at + span]) for at in range(0, len(sizes), span)]
    return [size / totals[batch // span] for batch, size in enumerate(sizes)]


class Saves:
    """The newest states of one member's share of a job, on disk: a killed one goes on there.

    Args:
        folder: this member's own; one process uses it.
        identity: of the job; what another one left there is not taken.
        every: batches between two saves.
        most: how many are kept, so that members who are apart have one in common.
    """

    def __init__(self, folder: Path, identity: str, every: int, most: int) -> None:
        self.every, self.most = every, most
        self._identity = identity
        self._checkpoint = Checkpoint(folder)
        self._states: dict[int, State] = {}  # by how many batches are done
        self._marks: dict[int, dict[str, Array]] = {}  # buffers, by the next batch

    def open(self) -> list[int]:
        """Return after how many batches there are saves.

        Raises:
            TrustError: ``STO-T011`` when a file is damaged.
            UsageError: ``STO-T023`` when another process has the folder.
        """
        found = self._checkpoint.open()
        if found is not None and found.plain.get("identity") == self._identity:
            names = [name for name in found.plain if name.isdecimal()]
            self._states = {int(name): select(found, name) for name in names}
        return sorted(self._states)

    def read(self, done: int) -> Kept:
        """Return one of them; later ones are forgotten."""
        self._states = {n: one for n, one in self._states.items() if n <= done}
        return parse(self._states[done], Kept)

    def mark(self, batch: int, stage: Stage) -> None:
        """Note buffers before a forward, where a save will need them."""
        start = batch - batch % self.every
        if start and start not in self._marks and start not in self._states:
            self._marks[start] = stage.read_buffers()

    def save(self, done: int, stage: Stage, losses: list[list[float]]) -> None:
        """Make the state after `done` batches durable, if it is one to be saved.

        Raises:
            InternalError: ``STO-T022`` when the disk does not take it.
        """
        if done % self.every:
            return
        buffers = self._marks.pop(done, None) or stage.read_buffers()
        rows = [row for row in losses if row[0] < done]
        self._states[done] = render(stage.keep(buffers, rows))
        newest = sorted(self._states)[-self.most :]
        self._states = {number: self._states[number] for number in newest}
        states = {str(number): one for number, one in self._states.items()}
        own = State({}, {"identity": self._identity})
        self._checkpoint.write(join_states(own, **states))

    def close(self) -> None:
        """Let the folder go."""
        self._checkpoint.close()

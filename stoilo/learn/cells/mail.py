"""Tensors from stage to stage of a pipeline: point to point, receives posted ahead.

gloo hands a message over when both sides have named it, so receives are posted ahead and
sends are waited for late. Forms of activations are told once for each size of batch; those of
gradients are known. Every call raises gloo's `RuntimeError` when the other died, or was silent
for as long as the group allows.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from safetensors.numpy import load, save
from torch import Tensor

from stoilo.core.errors import UsageError
from stoilo.learn.cells.links import Links

AHEAD = 2  # so many receives of activations are posted before they are needed
_TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_MOST_AXES = 8
_FORM, _FORWARD, _BACKWARD, _SHARE, _RESULT = range(5)  # kinds of messages


class Mail:
    """One member's messages during one job.

    Args:
        links: to the others.
        sizes: of each batch, samples.
    """

    def __init__(self, links: Links, sizes: Sequence[int]) -> None:
        self.links, self._sizes = links, sizes
        self._going: dict[tuple[int, int], tuple[Any, Tensor]] = {}
        self._coming: deque[tuple[int, int]] = deque()  # batch, from whom
        self._posted: dict[tuple[int, int], tuple[Any, Tensor]] = {}
        # By the other's rank and the batch's size: forms of activations
        self._told: dict[tuple[int, int], list[int]] = {}
        self._heard: dict[tuple[int, int], list[int]] = {}

    def _send(self, tensor: Tensor, to: int, kind: int, number: int) -> None:
        whole = tensor.detach().contiguous()
        work = dist.isend(
            whole, group=self.links.group, group_dst=to, tag=_tag(kind, number)
        )
        self._going[kind, number] = work, whole

    def _post(self, into: Tensor, giver: int, kind: int, number: int) -> Any:  # noqa: ANN401 - torch's handle
        return dist.irecv(
            into, group=self.links.group, group_src=giver, tag=_tag(kind, number)
        )

    def settle(self, batch: int | None = None) -> None:
        """Wait until an activation has gone, which its gradient proves; or all that is out."""
        keys = [key for key in self._going if batch is None or key[1] == batch]
        for key in keys:
            self._going.pop(key)[0].wait()

    def expect(self, batches: Sequence[tuple[int, int]]) -> None:
        """Say which activations come, in the order of use, and from which member each."""
        self._coming.extend(batches)

    def send_on(self, batch: int, made: Tensor, to: int) -> None:
        """Send an activation; and await its gradient there, if it is to have one."""
        form, size = _read_form(made), (to, self._sizes[batch])
        if size not in self._told:
            self._told[size] = form
            self._send(torch.tensor(form), to, _FORM, batch)
        if self._told[size] != form:
            raise UsageError(
                "STO-T001", "the model cuts batches of one size to different shapes"
            )
        self._send(made, to, _FORWARD, batch)
        if torch.is_grad_enabled():
            slope = torch.empty_like(made, memory_format=torch.contiguous_format)
            work = self._post(slope, to, _BACKWARD, batch)
            self._posted[_BACKWARD, batch] = work, slope
        else:
            self._settle_old(_FORWARD)

    def take(self, batch: int) -> Tensor:
        """Return the next activation, and post receives of those after it."""
        if (_FORWARD, batch) not in self._posted:  # the first of its size
            _, giver = self._coming[0]
            form = torch.empty(_MOST_AXES + 2, dtype=torch.int64)
            self._post(form, giver, _FORM, batch).wait()
            self._heard[giver, self._sizes[batch]] = form.tolist()
        self._post_ahead()
        work, found = self._posted.pop((_FORWARD, batch))
        work.wait()
        self._post_ahead()
        return found

    def _post_ahead(self) -> None:
        posted = sum(kind == _FORWARD for kind, _ in self._posted)
        while self._coming and posted < AHEAD:
            batch, giver = self._coming[0]
            form = self._heard.get((giver, self._sizes[batch]))
            if form is None:
                return
            into = _make_empty(form)
            work = self._post(into, giver, _FORWARD, batch)
            self._posted[_FORWARD, batch] = work, into
            self._coming.popleft()
            posted += 1

    def send_back(self, batch: int, slope: Tensor, to: int) -> None:
        """Send the gradient of an activation to the member who made it."""
        self._settle_old(_BACKWARD)
        self._send(slope, to, _BACKWARD, batch)

    def _settle_old(self, kind: int) -> None:
        """Wait for all but the newest message of a kind: its receive is posted by now."""
        for key in [key for key in self._going if key[0] == kind][:-1]:
            self._going.pop(key)[0].wait()

    def take_back(self, batch: int) -> Tensor:
        """Return the gradient of an activation that was sent on."""
        work, slope = self._posted.pop((_BACKWARD, batch))
        work.wait()
        self.settle(batch)
        return slope

    def add_up(
        self, tensors: Mapping[str, Tensor], ranks: range, number: int
    ) -> dict[str, Tensor]:
        """Return the sums over all replicas of a stage, which all call it: the same bits.

        Each adds up one share of the numbers, in the order of ranks, and tells the others:
        of m replicas each sends ``2 (m - 1) / m`` of the numbers.
        """
        flat = torch.cat([one.flatten() for one in tensors.values()])
        # gloo sends no empty message: at least one number each.
        fill = flat.new_zeros(max(len(ranks) - flat.numel(), 0))
        shares = list(torch.cat([flat, fill]).tensor_split(len(ranks)))
        own = [shares[self.links.rank - ranks.start]] * len(ranks)
        came = self._exchange(ranks, number, shares, own)
        total = came[0].clone()
        for one in came[1:]:
            total += one
        told = self._exchange(ranks, number, [total] * len(ranks), shares)
        parts = iter(torch.cat(told).tensor_split(_ends(tensors)))
        return {
            name: next(parts).view_as(one).to(one.dtype, copy=True)
            for name, one in tensors.items()
        }

    def _exchange(
        self, ranks: range, number: int, given: list[Tensor], like: list[Tensor]
    ) -> list[Tensor]:
        """Give each replica something and return what each gave, in forms like these."""
        group, tag = self.links.group, _tag(_SHARE, number)
        into = [torch.empty_like(one) for one in like]
        works: list[Any] = []
        for rank, one, came in zip(ranks, given, into, strict=True):
            if rank == self.links.rank:
                came.copy_(one)
                continue
            works.append(dist.irecv(came, group=group, group_src=rank, tag=tag))
            whole = one.contiguous()
            works.append(dist.isend(whole, group=group, group_dst=rank, tag=tag))
        for work in works:
            work.wait()
        return into

    def agree(self, numbers: Sequence[int], room: int) -> int:
        """Return the largest number that every member names here; 0 when there is none.

        Args:
            numbers: this member's, above 0.
            room: at least how many any member has.
        """
        own = torch.zeros(room, dtype=torch.int64)
        own[: len(numbers)] = torch.tensor(numbers, dtype=torch.int64)
        all_of = [torch.empty_like(own) for _ in range(self.links.size)]
        dist.all_gather(all_of, own, group=self.links.group)
        common = set.intersection(*(set(one.tolist()) for one in all_of))
        return max(common, default=0)

    def gather(self, tensors: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
        """Return at rank 0 what each member gives here, by rank; elsewhere nothing."""
        if self.links.rank:
            # By way of numpy: what is in a member's process keeps torch's storages shut.
            whole = {n: t.detach().contiguous().numpy() for n, t in tensors.items()}
            data = torch.frombuffer(bytearray(save(whole)), dtype=torch.uint8)
            self._send(torch.tensor([len(data)]), 0, _RESULT, 0)
            self._send(data, 0, _RESULT, 1)
            self.settle()
            return []
        found = [dict(tensors)]
        for giver in range(1, self.links.size):
            size = torch.empty(1, dtype=torch.int64)
            self._post(size, giver, _RESULT, 0).wait()
            into = torch.empty(int(size), dtype=torch.uint8)
            self._post(into, giver, _RESULT, 1).wait()
            arrays = load(into.numpy().tobytes())
            found.append({name: torch.from_numpy(a) for name, a in arrays.items()})
        return found


def _ends(tensors: Mapping[str, Tensor]) -> list[int]:
    return list(itertools.accumulate(one.numel() for one in tensors.values()))


def _tag(kind: int, number: int) -> int:
    return number * (_RESULT + 1) + kind


def _read_form(made: Tensor) -> list[int]:
    """Return type and shape as numbers of a fixed length.

    Raises:
        UsageError: ``STO-T001``, what is between two layers is not one tensor of floats.
    """
    if made.dtype not in _TYPES or made.ndim > _MOST_AXES:
        raise UsageError(
            "STO-T001",
            f"{made.dtype} of {made.ndim} axes cannot go from stage to stage",
            hint="cut the model where one tensor of floats is alive",
        )
    rest = [0] * (_MOST_AXES - made.ndim)
    return [_TYPES.index(made.dtype), made.ndim, *made.shape, *rest]


def _make_empty(form: list[int]) -> Tensor:
    kind, axes, *shape = form
    return torch.empty(shape[:axes], dtype=_TYPES[kind])

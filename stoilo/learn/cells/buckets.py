"""Gradients in buckets: a bucket's sum over members is under way while backward goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from stoilo.learn.kernels import torch_models

_kernels: Any = torch_models  # untyped: they travel as source


class _Bucket:
    """Neighbours' gradients in one vector."""

    def __init__(self, parameters: Sequence[Tensor], flags: int) -> None:
        sizes = [p.numel() for p in parameters]
        kind = _kernels.widen(parameters[0].new_empty(0)).dtype
        self.flat = torch.zeros(sum(sizes) + flags, dtype=kind)
        parts = torch.split(self.flat, [*sizes, flags])
        self.places = {
            p: part.view(p.shape) for p, part in zip(parameters, parts, strict=False)
        }
        self.flags = parts[-1]
        self.missing: set[Tensor] = set()


class Buckets:
    """Sums of gradients over members: a bucket leaves as soon as all of it is there.

    Args:
        parameters: the same at all members; later ones are expected first.
        most: bytes of a bucket; one parameter may be larger.
        group: the members.
    """

    def __init__(
        self, parameters: Sequence[Tensor], most: int, group: dist.ProcessGroup
    ) -> None:
        self._group, self._numbers = group, {p: n for n, p in enumerate(parameters)}
        cut = [*_cut(parameters[::-1], most)]
        self._buckets = [_Bucket(row, 0) for row in cut[:-1]]
        # The last one also says whose parameters got any gradient.
        self._buckets.append(_Bucket(cut[-1], len(parameters)))
        self._of = {p: bucket for bucket in self._buckets for p in bucket.places}
        hooked: Any = parameters  # torch has no types for it
        self._hooks = [p.register_post_accumulate_grad_hook(self._note) for p in hooked]
        self.sent: list[Any] = []  # what is under way

    def begin(self) -> None:
        """Expect the gradients of one backward."""
        self.sent = []
        for bucket in self._buckets:
            bucket.flat.zero_()
            bucket.missing = {*bucket.places}

    def _note(self, p: Tensor) -> None:
        bucket = self._of[p]
        bucket.places[p].copy_(_kernels.dense(p.grad))
        p.grad = None  # its memory
        bucket.missing.discard(p)
        self._buckets[-1].flags[self._numbers[p]] = 1
        self._send(lambda bucket: not bucket.missing)

    def _send(self, is_ready: Callable[[_Bucket], bool]) -> None:
        # In one order at all members, whatever order gradients come in.
        while len(self.sent) < len(self._buckets):
            bucket = self._buckets[len(self.sent)]
            if not is_ready(bucket):
                return
            work = dist.all_reduce(bucket.flat, group=self._group, async_op=True)
            self.sent.append(work)

    def finish(self) -> None:
        """Send what never got a gradient too, and give each parameter the sum."""
        self._send(lambda _: True)
        for work in self.sent:
            work.wait()
        used = self._buckets[-1].flags
        for p, bucket in self._of.items():
            is_used = bool(used[self._numbers[p]])
            p.grad = bucket.places[p].to(p.dtype) if is_used else None

    def close(self) -> None:
        """Leave the parameters alone."""
        for hook in self._hooks:
            hook.remove()


def _cut(parameters: Iterable[Tensor], most: int) -> Iterator[list[Tensor]]:
    """Yield neighbours of one type, of so many bytes together."""
    row: list[Tensor] = []
    for p in parameters:
        size = sum(one.nbytes for one in row) + p.nbytes
        if row and (size > most or p.dtype != row[0].dtype):
            yield row
            row = []
        row.append(p)
    yield row

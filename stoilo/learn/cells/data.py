"""Data parallel inside a cell: members share a batch's rows and add up their gradients.

The kernels of `torch_models` run as they stand, at every member. What is put around the
model gives it the member's own rows, and has the loss, the gradients and what looks at all
rows at once be everybody's: the answer is the kernel's own, up to the order of sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from stoilo.learn.cells.buckets import Buckets, Slices
from stoilo.learn.cells.links import Links
from stoilo.learn.kernels import torch_models

_kernels: Any = torch_models  # untyped: they travel as source
# Its callback at a backward's end is what torch's own DDP waits for.
_engine: Any = torch.autograd.Variable._execution_engine  # noqa: SLF001 - there is no other
_Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Data:
    """The layout of a cell whose members have whole rows of each batch: as many, or one more.

    BatchNorm's statistics and `dropout`'s draws are those of the whole batch; what a model
    computes over rows by itself is the member's own, and what else it draws at random is
    drawn alike at each. The loss is a mean or a sum over rows, as kernels want it, and the
    model uses the same layers whatever the rows are.

    Attributes:
        bucket_bytes: of gradients that are summed together, while backward goes on.
        shard: members hold a slice of each parameter, of its gradient and of what an
            optimiser keeps, and a whole layer only while it computes: for models that do
            not fit. What stands in a ``ModuleList`` or ``Sequential`` is collected singly
            and must be called (``STO-T040``); the rest is whole through a forward pass.
            Rank 0 holds the answer once, whole.
    """

    bucket_bytes: int = 4 << 20
    shard: bool = False

    def execute(self, kernel: str, kwargs: _Answer, links: Links) -> _Answer | None:
        """Run a kernel of `torch_models` by all members; rank 0 returns its answer.

        The job's model is used up.

        Raises:
            RuntimeError: a peer is gone, or did not answer within the group's limit.
            UsageError: ``STO-T040``, the model's use of its layers does not suit `shard`.
        """
        asked = {**kwargs, **_kernels.arrive(kwargs), "downlink": None}
        slices = None
        if self.shard:
            slices = Slices(asked["model"], asked["parameters"], links)
        with _Member(asked, links, self.bucket_bytes, slices) as member:
            found: _Answer = getattr(_kernels, kernel)(member.arguments())
            found |= member.tell(found)
        return None if links.rank else found


@dataclass(frozen=True, slots=True)
class Portion:
    """A member's own of so many rows; where there are too few, a row that counts nothing."""

    total: int  # rows of all members
    first: int
    end: int

    @classmethod
    def of(cls, total: int, rank: int, size: int) -> Self:
        """Return what falls to a rank."""
        return cls(total, total * rank // size, total * (rank + 1) // size)

    @property
    def share(self) -> float:
        """Return how much of the batch's mean the portion's is."""
        return (self.end - self.first) / self.total

    def cut(self, rows: Any) -> Any:  # noqa: ANN401 - one array, or a tuple of several
        """Return the member's rows: all of its layers run, whether or not they count."""
        first = min(self.first, self.total - 1)
        return _kernels.take(rows, slice(first, max(self.end, first + 1)))


@dataclass(frozen=True, slots=True)
class _Output:
    """What the model made of a member's rows: no tensor, so the kernel leaves it alone."""

    value: Any


class _Total(torch.autograd.Function):
    """The sum over members; backwards too, for all of them use it."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, group: Any) -> Tensor:  # noqa: ANN401 - as torch has it
        ctx.group = group
        return _add_up(own.clone(), group)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401 - as above
        return _add_up(slope.clone(), ctx.group), None


class _Loss(torch.autograd.Function):
    """Everybody's loss, whose backward is the member's own; at its end, `ended` is called."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, group: Any, ended: Callable[[], None]) -> Tensor:  # noqa: ANN401 - as above
        ctx.ended = ended
        return _add_up(own.clone(), group)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401 - as above
        _engine.queue_callback(ctx.ended)
        return slope, None, None


_total: Any = _Total.apply  # torch has no types for it
_loss: Any = _Loss.apply  # as above


def _add_up(tensor: Tensor, group: dist.ProcessGroup) -> Tensor:
    dist.all_reduce(tensor, group=group)
    return tensor


class _Member:
    """Stands around a kernel at one member."""

    def __init__(
        self, asked: _Answer, links: Links, bucket_bytes: int, slices: Slices | None
    ) -> None:
        self._asked, self._links, self._bytes = asked, links, bucket_bytes
        self._slices = slices
        self._sums: Buckets | Slices | None = slices  # who adds gradients up
        self._portion = Portion(1, 0, 1)
        self._right, self._unsure = 0, 0
        self._labels: Tensor | None = None
        # Layers call these by name; the jail's seal leaves the names in place.
        self._ours: dict[tuple[Any, str], Any] = {
            (functional, "batch_norm"): self._normalise,
            (functional, "dropout"): self._drop,
        }
        self._plain = {name: getattr(place, name) for place, name in self._ours}
        model = asked["model"]
        self._hooks = [
            model.register_forward_pre_hook(self._enter),
            model.register_forward_hook(self._leave),
        ]

    def arguments(self) -> _Answer:
        """Return what the kernel is called with in the order's place."""
        given = {**self._asked, "loss": self.judge, "reduction": "mean"}
        given["settings"] = {**self._asked["settings"], "transport": None}
        if self._slices:  # they are in the model
            given["parameters"] = dict(_kernels.trained(self._asked["model"]))
        return given

    def __enter__(self) -> Self:
        """Have layers look at everybody's rows, by the names that they call."""
        for (place, name), ours in self._ours.items():
            setattr(place, name, ours)
        return self

    def __exit__(self, *_: object) -> None:
        """Leave model and library as they were."""
        for place, name in self._ours:
            setattr(place, name, self._plain[name])
        self._ours.clear()  # a ring by its own methods: the order would wait for a collection
        for hook in self._hooks:
            hook.remove()
        if self._sums:
            self._sums.close()

    def _enter(self, model: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        links = self._links
        self._portion = Portion.of(len(inputs[0]), links.rank, links.size)
        if torch.is_grad_enabled() and self._sums is None:
            # Not before: the kernel gives parameters their form.
            parameters = [p for _, p in _kernels.trained(model)]
            self._sums = Buckets(parameters, self._bytes, links.group)
        if self._sums:
            self._sums.begin()
        return tuple(self._portion.cut(one) for one in inputs)

    def _leave(self, _: nn.Module, __: object, output: object) -> _Output:
        if self._slices:
            self._slices.leave()
        return _Output(output)

    def judge(self, output: _Output, y: Any) -> Tensor:  # noqa: ANN401 - the researcher's
        """Return the mean loss of everybody's rows; for the kernel, in the loss's place."""
        own = self._portion.cut(y)
        count = _kernels.count(own)
        loss, correct = _kernels.judge(self._asked, output.value, own, count)
        if correct < 0:
            self._unsure += 1
        elif self._portion.share:
            self._right += correct
            self._labels = output.value.argmax(1)
        ended = self._sums.finish if self._sums else lambda: None
        share: Tensor = _loss(loss * self._portion.share, self._links.group, ended)
        return share

    def tell(self, found: _Answer) -> _Answer:
        """Return what the kernel could not say: who was right, labels; what travels."""
        told = torch.tensor([self._right, self._unsure])
        right, unsure = _add_up(told, self._links.group).tolist()
        tensors, own = found["tensors"], self._portion
        if self._asked["settings"].get("labels") and not (unsure or tensors):
            labels = torch.zeros(own.total, dtype=torch.int64)
            if self._labels is not None:
                labels[own.first : own.end] = self._labels
            tensors = {"labels": _add_up(labels, self._links.group).numpy()}
        elif self._slices:
            tensors = self._slices.join(tensors)
        if self._links.rank == 0:
            tensors = _kernels.pack(self._asked, tensors)
        return {"correct": -1 if unsure else right, "tensors": tensors}

    def _normalise(
        self,
        input: Tensor,  # noqa: A002 - torch's name
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        x = input
        if not training:
            rest = weight, bias, training, momentum, eps
            plain: Tensor = self._plain["batch_norm"](
                x, running_mean, running_var, *rest
            )
            return plain
        wide: Tensor = _kernels.widen(x)
        form = 1, -1, *[1] * (x.ndim - 2)
        others = [0, *range(2, x.ndim)]
        counts = float(self._portion.share > 0)
        size = torch.full((1,), x.numel() / x.shape[1] * counts, dtype=wide.dtype)
        told = torch.cat([counts * wide.sum(others), size])
        found: Tensor = _total(told, self._links.group)
        mean, size = found[:-1] / found[-1], found[-1].detach()
        if size <= 1:
            raise ValueError("BatchNorm needs more than one value of each channel")
        middle = wide - mean.view(form)
        spread = counts * (middle * middle).sum(others)
        variance: Tensor = _total(spread, self._links.group) / size
        with torch.no_grad():
            if running_mean is not None and running_var is not None:
                running_mean.lerp_(mean.to(running_mean.dtype), momentum)
                unbiased = variance * (size / (size - 1))
                running_var.lerp_(unbiased.to(running_var.dtype), momentum)
        y = middle * torch.rsqrt(variance + eps).view(form)
        if weight is not None:
            y = y * weight.view(form)
        if bias is not None:
            y = y + bias.view(form)
        return y.to(x.dtype)

    def _drop(
        self,
        input: Tensor,  # noqa: A002 - torch's name
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
    ) -> Tensor:
        x = input
        own = self._portion
        times, rest = divmod(len(x) if x.ndim else 0, max(own.end - own.first, 1))
        if not training or rest or not times or not 0 < p < 1:
            plain: Tensor = self._plain["dropout"](x, p, training, inplace)
            return plain
        form = own.total * times, *x.shape[1:]
        kept = torch.empty(form, dtype=x.dtype).bernoulli_(1 - p).div_(1 - p)
        first = min(own.first, own.total - 1) * times
        mask = kept[first : first + len(x)]
        return x.mul_(mask) if inplace else x.mul(mask)

"""Layers whose weights lie in parts at the members of a group, as in Megatron.

Each stands for an ordinary module of torch and computes what that computes, up to the order
of sums (Shoeybi et al. 2019; sequence slices: Korthikanti et al. 2022). What goes into a
layer split by columns is whole, what comes out of one split by rows is whole again, and in
between each member has its own columns: two exchanges forward and two backward for an MLP
and its attention. Parts may be of any size, none included. The members trust each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor, nn

from stoilo.core.errors import UsageError

__all__ = ["Column", "Dropout", "Region", "Row", "Share", "Vocabulary", "check_range"]

_INSIDE = 2718  # between the seeds of masks that are alike and of those that differ


@dataclass(frozen=True)
class Share:
    """Which indices of a whole parameter each member holds, along one dimension.

    Attributes:
        dim: the dimension.
        size: of the whole along it.
        held: by rank, ascending within a block; an index may have several holders.
        repeat: by rank, which of its units stands for each query head (see `Split`).
        unit: how many indices a unit has.
    """

    dim: int
    size: int
    held: tuple[tuple[int, ...], ...]
    repeat: tuple[tuple[int, ...], ...] | None = None
    unit: int = 1

    @property
    def copied(self) -> bool:
        """Whether some index has several holders."""
        return sum(map(len, self.held)) > self.size

    def owned(self, rank: int) -> Tensor:
        """Return which of its entries no lower rank holds, as positions."""
        lower = set().union(*map(set, self.held[:rank]))
        own = [at for at, index in enumerate(self.held[rank]) if index not in lower]
        return torch.tensor(own, dtype=torch.long)

    def take(self, whole: Tensor, rank: int) -> Tensor:
        """Return a member's part of the whole, a copy."""
        return whole.index_select(self.dim, self._index(rank))

    def place(self, part: Tensor, rank: int, *, once: bool) -> Tensor:
        """Return zeros as large as the whole, with the part, or what it owns of it, inside."""
        index = self._index(rank)
        if once:
            own = self.owned(rank)
            part, index = part.index_select(self.dim, own), index[own]
        shape = list(part.shape)
        shape[self.dim] = self.size
        return part.new_zeros(shape).index_copy_(self.dim, index, part)

    def _index(self, rank: int) -> Tensor:
        return torch.tensor(self.held[rank], dtype=torch.long)


class _Exchange(torch.autograd.Function):
    """One function forward, its conjugate backward; all members call both."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's
        x: Tensor,
        forth: Callable[[Tensor], Tensor],
        back: Callable[[Tensor], Tensor],
    ) -> Tensor:
        ctx.back = back
        return forth(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401 - torch's
        return ctx.back(gradients[0]), None, None


def _exchange(
    x: Tensor, forth: Callable[[Tensor], Tensor], back: Callable[[Tensor], Tensor]
) -> Tensor:
    found: Tensor = _Exchange.apply(x, forth, back)  # type: ignore[no-untyped-call]
    return found


def _same(x: Tensor) -> Tensor:
    return x.view_as(x)


@dataclass(frozen=True)
class Region:
    """The members among whom layers are split, and what they exchange.

    Attributes:
        group: of torch.distributed; the default one when None.
        sequence: between split layers each member has a slice of the last dimension but
            one, of equal length: normalisation and dropout there are computed once.
        inside: draws what must differ between members; `seed` sets it.
    """

    rank: int
    size: int
    group: dist.ProcessGroup | None = None
    sequence: bool = False
    inside: torch.Generator = field(default_factory=torch.Generator)

    def seed(self, seed: int) -> None:
        """Seed both streams: torch's own, alike at all members, and the one inside."""
        torch.manual_seed(seed)
        self.inside.manual_seed(seed + _INSIDE + self.rank)

    def total(self, x: Tensor, operation: Any = dist.ReduceOp.SUM) -> Tensor:  # noqa: ANN401 - torch's
        """Return the members' sum (or other reduction), the same bits at each."""
        if self.size == 1:
            return x
        found = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(found, operation, self.group)
        return found

    def enter(self, x: Tensor) -> Tensor:
        """Return what a column layer takes (f): its gradient is the members' sum."""
        if self.sequence:
            return _exchange(x, self.join, self.spread)
        return _exchange(x, _same, self.total)

    def leave(self, x: Tensor) -> Tensor:
        """Return the sum of what row layers give (g): its gradient is everybody's."""
        if self.sequence:
            return _exchange(x, self.spread, self.join)
        return _exchange(x, self.total, _same)

    def gather(self, x: Tensor, share: Share) -> Tensor:
        """Return all columns; each member's gradient is that of its own."""
        along = Share(x.ndim - 1, share.size, share.held)
        return _exchange(
            x,
            lambda part: self.total(along.place(part, self.rank, once=True)),
            lambda whole: along.take(whole, self.rank),
        )

    def own_slice(self, x: Tensor) -> Tensor:
        """Return this member's slice of a sequence, dimension -2.

        Raises:
            UsageError: ``STO-T040``: members do not divide the length.
        """
        length, rest = divmod(x.shape[-2], self.size)
        if rest:
            raise UsageError(
                "STO-T040",
                f"a sequence of {x.shape[-2]} has no {self.size} equal slices",
                hint="pad it, or split the model without slices of sequences",
            )
        return x.narrow(-2, length * self.rank, length)

    def join(self, x: Tensor) -> Tensor:
        """Return the whole sequence out of the members' slices."""
        if self.size == 1:
            return x
        first = x.movedim(-2, 0).contiguous()
        found = x.new_empty(first.shape[0] * self.size, *first.shape[1:])
        dist.all_gather_single(found, first, self.group)
        return found.movedim(0, -2)

    def spread(self, x: Tensor) -> Tensor:
        """Return this member's slice of the members' sum."""
        if self.size == 1:
            return x
        first = x.movedim(-2, 0).contiguous()
        found = torch.empty_like(self.own_slice(x).movedim(-2, 0).contiguous())
        dist.reduce_scatter_single(found, first, group=self.group)
        return found.movedim(0, -2)


class Column(nn.Module):
    """A linear layer of which each member has some output columns.

    Args:
        weight: (own columns, inputs).
        bias: (own columns,) or None.
    """

    def __init__(
        self,
        weight: nn.Parameter,
        bias: nn.Parameter | None,
        region: Region,
        share: Share,
    ) -> None:
        super().__init__()
        self.weight, self.bias, self.region, self.share = weight, bias, region, share

    def forward(self, x: Tensor) -> Tensor:
        """Return (…, own columns) of the whole (…, inputs)."""
        found = F.linear(self.region.enter(x), self.weight, self.bias)
        if self.share.repeat is None:
            return found
        units = found.reshape(*found.shape[:-1], -1, self.share.unit)
        repeat = torch.tensor(self.share.repeat[self.region.rank], dtype=torch.long)
        return units.index_select(-2, repeat).flatten(-2)


class Row(nn.Module):
    """A linear layer of which each member has the weights of some inputs.

    Args:
        weight: (outputs, own inputs).
        bias: (outputs,), whole at each member, added once; or None.
    """

    def __init__(
        self, weight: nn.Parameter, bias: nn.Parameter | None, region: Region
    ) -> None:
        super().__init__()
        self.weight, self.bias, self.region = weight, bias, region

    def forward(self, x: Tensor) -> Tensor:
        """Return the whole (…, outputs) of (…, own inputs)."""
        found = self.region.leave(F.linear(x, self.weight))
        return found if self.bias is None else found + self.bias


class Vocabulary(nn.Module):
    """An embedding of which each member has the rows of some tokens, `held` in one piece.

    Args:
        weight: (own tokens, width).
        like: the whole layer, for what else it does to its rows.
    """

    def __init__(
        self, weight: nn.Parameter, like: nn.Embedding, region: Region, share: Share
    ) -> None:
        super().__init__()
        self.weight, self.region, self.size = weight, region, share.size
        self.start = next(iter(share.held[region.rank]), 0)
        padded = like.padding_idx
        is_own = padded is not None and padded in share.held[region.rank]
        self.given: dict[str, Any] = {
            "padding_idx": padded - self.start
            if padded is not None and is_own
            else None,
            "max_norm": like.max_norm,
            "norm_type": like.norm_type,
            "scale_grad_by_freq": like.scale_grad_by_freq,
        }

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the whole (…, width) of tokens (…); others' rows are zeros until summed."""
        check_range(tokens, self.size)
        local = tokens - self.start
        own = (local >= 0) & (local < len(self.weight))
        found = self.weight.new_zeros(*tokens.shape, self.weight.shape[1])
        found[own] = F.embedding(local[own], self.weight, **self.given)
        return self.region.leave(found)


def check_range(tokens: Tensor, size: int) -> None:
    """Refuse tokens that nobody holds: they would count as zeros, and no error be seen.

    Raises:
        IndexError: as torch's own layers do.
    """
    if bool(((tokens < 0) | (tokens >= size)).any()):
        raise IndexError(f"a token is outside of the {size} that there are")


class Dropout(nn.Dropout):
    """Dropout where members hold different numbers: each draws masks of its own."""

    def __init__(self, p: float, region: Region) -> None:
        super().__init__(p)
        self.region = region

    def forward(self, x: Tensor) -> Tensor:
        """Return x with some entries zero, the others larger for it; x itself in evaluation."""
        if not self.training or self.p == 0.0:
            return x
        kept = torch.empty_like(x).bernoulli_(1 - self.p, generator=self.region.inside)
        return x * kept / (1 - self.p) if self.p < 1 else x * kept

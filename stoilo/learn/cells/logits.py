"""Logits of which each member has some classes: torch's loss of the whole, none collected.

Four numbers a token and member travel instead of all classes (Shoeybi et al. 2019, §3).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor

from stoilo.core.errors import UsageError
from stoilo.learn.cells.layers import Region, Share, check_range
from stoilo.learn.kernels.torch_models import widen

__all__ = ["Logits", "cross_entropy"]


class _Entropy(torch.autograd.Function):
    """Each token's cross-entropy, out of three sums and a maximum over the members."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's
        z: Tensor,  # (tokens, own classes)
        target: Tensor,  # (tokens,) positions among one's own classes, or -1
        smoothing: float,
        region: Region,
        size: int,
    ) -> Tensor:
        z = z - region.total(_largest(z), dist.ReduceOp.MAX)[:, None]
        own = torch.nonzero(target >= 0)[:, 0]
        hit, powers = z.new_zeros(len(z)), z.exp()
        hit[own] = z[own, target[own]]
        spread = z.sum(1) if smoothing else torch.zeros_like(hit)
        sums = region.total(torch.stack([powers.sum(1), hit, spread]))
        ctx.save_for_backward(powers / sums[0, :, None], own, target)
        ctx.smoothing, ctx.size = smoothing, size
        # The global number of classes: a member's own would be another loss.
        return sums[0].log() - (1 - smoothing) * sums[1] - smoothing / size * sums[2]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401 - torch's
        soft, own, target = ctx.saved_tensors
        slope = soft - ctx.smoothing / ctx.size
        slope[own, target[own]] -= 1 - ctx.smoothing
        return slope * gradients[0][:, None], None, None, None, None


def _largest(z: Tensor) -> Tensor:
    # Over no classes there is no maximum.
    return z.amax(1) if z.shape[1] else z.new_full((len(z),), -torch.inf)


def cross_entropy(
    logits: Tensor,
    target: Tensor,
    region: Region,
    share: Share,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return torch's cross-entropy of logits whose classes are split: none is collected.

    ``logits`` are (own classes,), (N, own classes) or (N, own classes, …), ``target`` of that
    shape without the classes. The rest is as torch has it: means are of the valid tokens,
    halves are summed as float32 (and the loss stays that).

    Raises:
        IndexError: a target is no class.
        UsageError: ``STO-T040``: the shapes do not fit.
    """
    dim = 1 if logits.ndim > 1 else 0
    if logits.shape[dim] != len(share.held[region.rank]):
        raise _refuse("cross_entropy along another dimension than that of the classes")
    flat = widen(logits).movedim(dim, -1)[None].flatten(0, -2)  # type: ignore[no-untyped-call]
    if target.numel() != len(flat):
        raise _refuse(f"the loss of {len(flat)} tokens by {target.numel()} targets")
    wanted = target.reshape(-1)
    valid = wanted != ignore_index
    check_range(wanted[valid], share.size)
    where = torch.full((share.size + 1,), -1)  # the last: ignored
    held = torch.tensor(share.held[region.rank], dtype=torch.long)
    where[held] = torch.arange(len(held))
    mine = where[torch.where(valid, wanted, share.size)]
    losses: Tensor = _Entropy.apply(flat, mine, label_smoothing, region, share.size)  # type: ignore[no-untyped-call]
    losses = torch.where(valid, losses, 0.0)
    if reduction == "none":
        return losses.reshape(target.shape)
    return losses.sum() / valid.sum() if reduction == "mean" else losses.sum()


class Logits(Tensor):
    """A member's part of logits: their form may change, and torch's loss is of the whole.

    ``F.cross_entropy`` and ``nn.CrossEntropyLoss`` go through `cross_entropy`, ``argmax``
    knows all classes. Anything else would compute on a part and is refused by name.
    """

    region: ClassVar[Region]
    share: ClassVar[Share]

    @staticmethod
    def of(part: Tensor, region: Region, share: Share) -> Logits:
        """Return a member's part, marked."""
        kind = type("Logits", (Logits,), {"region": region, "share": share})
        return part.as_subclass(kind)

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Any,  # noqa: ANN401 - torch's
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - torch's
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if func is F.cross_entropy:
            bound = inspect.signature(func).bind(*args, **kwargs).arguments
            return cls._judge(**bound)
        if name == "argmax":
            return cls._find_largest(*args, **kwargs)
        if name not in _FORM:
            raise _refuse(name)
        return super().__torch_function__(func, types, args, kwargs)  # type: ignore[no-untyped-call]

    @classmethod
    def _judge(cls, input: Tensor, target: Tensor, **given: Any) -> Tensor:  # noqa: A002, ANN401 - torch's names
        known = {"ignore_index", "reduction", "label_smoothing"}
        told = {name: value for name, value in given.items() if value is not None}
        if told.keys() - known or target.is_floating_point():
            raise _refuse("cross_entropy with class weights or probabilities")
        plain = input.as_subclass(Tensor)
        return cross_entropy(plain, target, cls.region, cls.share, **told)

    @classmethod
    def _find_largest(cls, part: Tensor, dim: int = -1) -> Tensor:
        region, plain = cls.region, part.as_subclass(Tensor).detach().movedim(dim, -1)
        flat, none = plain[None].flatten(0, -2), cls.share.size
        most = _largest(flat)
        place = flat.argmax(1) if flat.shape[1] else torch.zeros(len(flat)).long()
        known = torch.tensor([*cls.share.held[region.rank], none])
        is_whole = most == region.total(most, dist.ReduceOp.MAX)
        found = torch.where(is_whole, known[place], none)
        return region.total(found, dist.ReduceOp.MIN).reshape(plain.shape[:-1])


# What changes form only
_FORM = {
    *("__get__", "size", "dim", "numel", "detach", "transpose", "permute", "movedim"),
    *("flatten", "reshape", "view", "contiguous", "squeeze", "unsqueeze", "float"),
    *("double", "__repr__"),
}


def _refuse(name: str) -> UsageError:
    return UsageError(
        "STO-T040",
        f"{name} cannot be told from a part of the logits",
        hint='give the layer the plan "whole": it then returns all columns',
    )

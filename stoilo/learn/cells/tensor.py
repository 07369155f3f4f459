"""A module split over a cell by a plan, and the layout that runs kernels on it.

The module is an ordinary one, made whole by one seed, so that its start does not depend on
the number of members; each keeps its part of the planned layers and all of the others.
Gradients and weights leave whole again. Within a cell everybody is trusted.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from stoilo.core.errors import UsageError
from stoilo.learn.cells.layers import Column, Dropout, Region, Row, Share, Vocabulary
from stoilo.learn.cells.links import Links
from stoilo.learn.cells.logits import Logits
from stoilo.learn.core.models import read_trained
from stoilo.learn.kernels import torch_models
from stoilo.learn.kernels.encoding import arrive, pack

__all__ = [
    "Plan",
    "Split",
    "Tensor",
    "gather",
    "hold",
    "measure_norm",
    "split",
]


@dataclass(frozen=True)
class Split:
    """How one layer is split.

    Attributes:
        kind: of a linear layer ``column`` (outputs split and left so), ``row`` (inputs
            split), ``whole`` (as column, outputs collected) or ``vocabulary`` (as column,
            torch's cross-entropy computed on the parts); of an embedding ``vocabulary``.
            Of dropout between column and row ``inside``. Of what lies between row and
            column ``sequence``, where the region has slices of sequences.
        unit: how many neighbours stay together: a head's width.
        parts: how many units each member has; as even as can be when None.
        blocks: how many matrices are stacked, each split alike: 3 for joined q, k and v.
        queries: of keys' and values' layer, how many query heads there are (``parts`` are
            theirs): members have the heads that theirs need, copies where several do, and
            the layer gives one to each query head.
    """

    kind: str
    unit: int = 1
    parts: tuple[int, ...] | None = None
    blocks: int = 1
    queries: int | None = None


Plan = Mapping[str, "str | Split"]  # path of a submodule → how it is split


@dataclass(frozen=True)
class Tensor:
    """The layout of a cell whose members have parts of each planned layer.

    Attributes:
        plan: of the model's layers; what it does not name is whole at each member.
        sequence: as `Region.sequence`.
    """

    plan: Plan
    sequence: bool = False

    def execute(
        self, kernel: str, kwargs: dict[str, Any], links: Links
    ) -> dict[str, Any] | None:
        """Run a kernel of `torch_models` by all members; rank 0 returns its answer.

        Raises:
            UsageError: ``STO-T040``: the plan is not one of this model.
        """
        kwargs = arrive(kwargs)  # type: ignore[no-untyped-call]
        region = Region(links.rank, links.size, links.group, self.sequence)
        given = {n: v for n, v in kwargs.items() if n != "downlink"}
        given["model"] = copy.deepcopy(kwargs["model"])
        with torch.random.fork_rng(devices=[]):
            # Masks outside must be alike, whether or not the order has a seed.
            drawn, asked = _draw_seed(region), kwargs["settings"].get("seed")
            settings = {**kwargs["settings"], "seed": drawn if asked is None else asked}
            model = torch_models.restore(given)  # type: ignore[no-untyped-call]
            shares = split(model, self.plan, region)
            region.seed(settings["seed"])
            given["parameters"] = read_trained(model)
            given["settings"] = {**settings, "transport": None}
            found: dict[str, Any] = getattr(torch_models, kernel)(given)
        tensors = {n: torch.from_numpy(a) for n, a in found["tensors"].items()}
        whole = gather(tensors, shares, region)
        if region.rank:
            return None
        arrays = {name: tensor.numpy() for name, tensor in whole.items()}
        found["tensors"] = pack(kwargs, arrays)  # type: ignore[no-untyped-call]
        return found


def _draw_seed(region: Region) -> int:
    """Return a number that rank 0 draws."""
    drawn = torch.randint(2**31, (1,)) if region.rank == 0 else torch.zeros(1).long()
    return int(region.total(drawn))


def hold(size: int, how: Split, members: int, dim: int = 0) -> Share:
    """Return who holds which indices of a dimension of so many.

    Raises:
        UsageError: ``STO-T040``: units, parts or heads do not fit the size.
    """
    units, rest = divmod(size, how.blocks * how.unit)
    heads = how.queries or units
    ends = [heads * rank // members for rank in range(members + 1)]
    parts = how.parts or tuple(b - a for a, b in pairwise(ends))
    fits = len(parts) == members and sum(parts) == heads and min(parts) >= 0
    if rest or heads % units or not fits:
        raise UsageError(
            "STO-T040",
            f"{size} do not fall into {how} for {members} members",
            hint="parts: one a member, together all units (query heads, for keys and values)",
        )
    spans = [range(a, b) for a, b in pairwise(accumulate(parts, initial=0))]
    each = heads // units
    needed = [sorted({head // each for head in span}) for span in spans]
    held = tuple(
        tuple(
            (block * units + one) * how.unit + at
            for block in range(how.blocks)
            for one in ones
            for at in range(how.unit)
        )
        for ones in needed
    )
    repeat = tuple(
        tuple(ones.index(head // each) for head in span)
        for ones, span in zip(needed, spans, strict=True)
    )
    return Share(dim, size, held, repeat if how.queries else None, how.unit)


def split(module: nn.Module, plan: Plan, region: Region) -> dict[str, Share]:
    """Put this member's part of each planned layer into a module, in place.

    Returns:
        Of each trained parameter that is split, under its name, who holds what.

    Raises:
        UsageError: ``STO-T040`` naming the layer that cannot be split so.
    """
    names = [name for name, _ in module.named_parameters()]
    parts = _Parts(region)
    for path, told in plan.items():
        how = told if isinstance(told, Split) else Split(told)
        parent, _, name = path.rpartition(".")
        layer = dict(module.named_modules()).get(path)
        if layer is None or layer is module:
            raise _refuse(path, how, "there is no such layer inside of the module")
        setattr(module.get_submodule(parent), name, parts.replace(path, layer, how))
    if [name for name, _ in module.named_parameters()] != names:
        raise _refuse("shared weights", None, _SHARED)
    known = {id(local): share for _, share, local in parts.made.values()}
    for name, p in module.named_parameters():
        if region.sequence and id(p) not in known and id(p) not in parts.mended:
            raise _refuse(
                name, None, "with slices of sequences, a plan names every layer"
            )
    named = module.named_parameters()
    return {name: known[id(p)] for name, p in named if id(p) in known}


_SHARED = "layers that share them are split alike, all or none"


@dataclass
class _Parts:
    """Parameters as they are split: one that several layers share, once."""

    region: Region
    # id → the whole, which keeps that id its own; who holds what; one's own part
    made: dict[int, tuple[torch.Tensor, Share, nn.Parameter]] = field(
        default_factory=dict
    )
    mended: set[int] = field(default_factory=set)

    def replace(self, path: str, layer: nn.Module, how: Split) -> nn.Module:
        """Return what takes a layer's place."""
        region, kind = self.region, how.kind
        if isinstance(layer, nn.Linear) and kind in {"column", "whole", "vocabulary"}:
            return self._column(layer, how)
        if isinstance(layer, nn.Linear) and kind == "row":
            share = hold(layer.in_features, how, region.size, dim=1)
            if layer.bias is not None:
                self._mend(layer.bias)
            return Row(self._part(layer.weight, share), layer.bias, region)
        if isinstance(layer, nn.Embedding) and how == Split(
            "vocabulary", parts=how.parts
        ):
            share = hold(layer.num_embeddings, how, region.size)
            return Vocabulary(self._part(layer.weight, share), layer, region, share)
        is_apart = kind == "inside" or (kind == "sequence" and region.sequence)
        if isinstance(layer, nn.Dropout) and is_apart:
            return Dropout(layer.p, region)
        if kind != "sequence":
            raise _refuse(path, how, f"it is of the class {type(layer).__name__}")
        for p in layer.parameters():
            self._mend(p)
        if isinstance(layer, nn.Embedding) and region.sequence:
            layer.register_forward_hook(lambda _, __, whole: region.own_slice(whole))
        return layer

    def _column(self, layer: nn.Linear, how: Split) -> nn.Module:
        share = hold(layer.out_features, how, self.region.size)
        weight = self._part(layer.weight, share)
        bias = None if layer.bias is None else self._part(layer.bias, share)  # type: ignore[redundant-expr]
        found = Column(weight, bias, self.region, share)
        region = self.region
        if how.kind == "whole":
            found.register_forward_hook(lambda _, __, part: region.gather(part, share))
        if how.kind == "vocabulary":
            found.register_forward_hook(
                lambda _, __, part: Logits.of(part, region, share)
            )
        return found

    def _mend(self, p: nn.Parameter) -> None:
        # A whole parameter that saw a slice has a part of its gradient.
        self.mended.add(id(p))
        if p.requires_grad and self.region.sequence:
            p.register_hook(self.region.total)  # type: ignore[no-untyped-call]

    def _part(self, p: torch.Tensor, share: Share) -> nn.Parameter:
        if id(p) not in self.made:
            local = nn.Parameter(
                share.take(p.detach(), self.region.rank), p.requires_grad
            )
            if share.copied and p.requires_grad:
                local.register_hook(lambda found: self._join(found, share))  # type: ignore[no-untyped-call]
            self.made[id(p)] = p, share, local
        _, known, local = self.made[id(p)]
        if known != share:
            raise _refuse("shared weights", None, _SHARED)
        return local

    def _join(self, gradient: torch.Tensor, share: Share) -> torch.Tensor:
        """Return the gradient of copies: the sum of what each holder found."""
        rank = self.region.rank
        return share.take(
            self.region.total(share.place(gradient, rank, once=False)), rank
        )


def _refuse(what: str, how: Split | None, why: str) -> UsageError:
    asked = f" as {how.kind!r}" if how else ""
    return UsageError(
        "STO-T040",
        f"{what} cannot be split{asked}: {why}",
        hint="see `stoilo.learn.cells.tensor.Split` for the kinds",
    )


def gather(
    tensors: Mapping[str, torch.Tensor], shares: Mapping[str, Share], region: Region
) -> dict[str, torch.Tensor]:
    """Return whole tensors at rank 0, and anything at others; all call it alike.

    What has no share is whole already. Of copies, which are equal, one counts.
    """
    whole = {}
    for name, tensor in tensors.items():
        share = shares.get(name)
        whole[name] = (
            tensor if share is None else share.place(tensor, region.rank, once=True)
        )
        if share is not None and region.size > 1:
            dist.reduce(whole[name], group=region.group, group_dst=0)
    return whole


def measure_norm(
    module: nn.Module,
    shares: Mapping[str, Share],
    region: Region,
    stages: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Return the norm of all gradients: of the parts together, of what is whole once.

    With `stages`, also over those: members of a pipeline that have other layers.
    ``nn.utils.clip_grads_with_norm_`` then shortens each member's gradients alike.
    """
    square = torch.zeros((), dtype=torch.float64)
    for name, p in module.named_parameters():
        if p.grad is not None and name in shares:
            own = p.grad.index_select(shares[name].dim, shares[name].owned(region.rank))
            square += own.double().square().sum()
        elif p.grad is not None and region.rank == 0:
            square += p.grad.double().square().sum()
    square = region.total(square)
    if stages is not None:
        dist.all_reduce(square, group=stages)
    return square.sqrt()

"""Split layers against the same whole ones, in float64, and the toys that differ."""

import copy
import functools

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from stoilo.core.errors import UsageError
from stoilo.learn.cells.layers import Dropout, Region
from stoilo.learn.cells.tensor import gather, split
from tests.support.ranks import run_ranks
from tests.support.transformers import Block, plan_block

WIDTH, HEADS, KV_HEADS, INNER = 12, 6, 2, 65
USUAL = 4  # members in the usual run; the other numbers take long
SIZES = [USUAL, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 8))]
PARTS = {2: (4, 2), 4: (1, 3, 0, 2), 8: (1, 1, 0, 1, 1, 0, 2, 0)}


def away(found, wanted):
    """Return the relative distance of two tensors."""
    return float((found - wanted).detach().norm() / wanted.detach().norm())


def run(module, x, slope, own=slice(None)):
    """Return a module's output and input gradient; its parameters get theirs."""
    x = x[:, own].clone().requires_grad_()
    y = module(x)
    y.backward(slope[:, own])
    return y.detach(), x.grad


def differences(whole, x, slope, plan, region, own=slice(None)):
    """Return how far a split copy's output, input and weight gradients are off."""
    member = copy.deepcopy(whole)
    shares = split(member, plan, region)
    y, back = run(whole, x, slope)
    found, found_back = run(member, x, slope, own)
    off = {"output": away(found, y[:, own]), "input": away(found_back, back[:, own])}
    grads = gather({n: p.grad for n, p in member.named_parameters()}, shares, region)
    if region.rank == 0:
        off |= {n: away(grads[n], p.grad) for n, p in whole.named_parameters()}
    return off


def compare(rank, size):
    found = {}
    for seed in range(5):
        torch.manual_seed(seed)
        x, slope = torch.randn(2, 2, 8, WIDTH)
        block = Block(WIDTH, HEADS, KV_HEADS, INNER)
        for name, parts in (("even", None), ("uneven", PARTS[size])):
            plan = plan_block(HEADS, parts=parts)
            off = differences(copy.deepcopy(block), x, slope, plan, Region(rank, size))
            found[name, seed] = max(off.values())
        region = Region(rank, size, sequence=True)
        own = slice(rank * 8 // size, (rank + 1) * 8 // size)
        off = differences(block, x, slope, plan_block(HEADS), region, own)
        found["sequence", seed] = max(off.values())
    return found


def look_up(rank, size):
    """Return how far embeddings of all kinds, and a layer that is collected, are off."""
    found, region = [], Region(rank, size)
    norm = {"max_norm": 1.0, "norm_type": 1.0}
    for given in ({"padding_idx": 3}, norm, {"scale_grad_by_freq": True}, {}):
        torch.manual_seed(0)
        whole = nn.Sequential(nn.Embedding(7, 5, **given), nn.Linear(5, 6))
        whole[0].weight.requires_grad_(bool(given))
        member = copy.deepcopy(whole)
        shares = split(member, {"0": "vocabulary", "1": "whole"}, region)
        tokens, slope = torch.tensor([[3, 1, 6, 1, 0]]), torch.randn(1, 5, 6)
        wanted, y = whole(tokens), member(tokens)
        wanted.backward(slope)
        y.backward(slope)
        found.append(away(y, wanted))
        trained = {n: p for n, p in member.named_parameters() if p.requires_grad}
        grads = gather({n: p.grad for n, p in trained.items()}, shares, region)
        if rank == 0:
            found += [away(grads[n], whole.get_parameter(n).grad) for n in grads]
    return found


def mislead(rank, size):
    """Return how far toys are off: GeLU of parts of sums, and biases added by everyone."""
    region, found = Region(rank, size), {}
    for seed in range(5):
        torch.manual_seed(seed)
        up, down = nn.Linear(64, 256), nn.Linear(256, 64)
        nn.init.normal_(down.bias)
        x = torch.randn(32, 64)
        half = x[:, rank::size], up.weight[:, rank::size]
        partial = F.gelu(half[0] @ half[1].T + up.bias / size)
        found["row first", seed] = away(region.total(partial), F.gelu(up(x)))
        mine = F.gelu(up(x))[:, rank::size] @ down.weight[:, rank::size].T
        wanted = down(F.gelu(up(x)))
        found["bias", seed] = away(region.total(mine + down.bias), wanted)
        found["ours", seed] = away(region.total(mine) + down.bias, wanted)
    return {key: float(value) for key, value in found.items()}


def use_library(rank, size):
    """Return how far torch's own tensor parallelism is off, or what it says."""
    found = []
    for width in (64, 65):
        torch.manual_seed(0)
        mlp = nn.Sequential(nn.Linear(8, width), nn.GELU(), nn.Linear(width, 8))
        x = torch.randn(3, 8)
        wanted = mlp(x).detach()
        ours = copy.deepcopy(mlp)
        split(ours, {"0": "column", "2": "row"}, Region(rank, size))
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        parallelize_module(mlp, init_device_mesh("cpu", (size,)), plan)
        try:
            theirs = away(mlp(x).detach(), wanted)
        except RuntimeError as error:
            theirs = str(error)
        found.append((theirs, away(ours(x).detach(), wanted)))
    return found


def draw_masks(rank, size):
    region, found = Region(rank, size), []
    for seed in range(5):
        region.seed(seed)
        x = torch.ones(1000)
        outside = nn.Dropout(0.25)(x)
        inside = Dropout(0.25, region)(x)
        others = [torch.empty_like(x) for _ in range(size)]
        dist.all_gather(others, outside)
        alike_outside = all(bool((o == outside).all()) for o in others)
        dist.all_gather(others, inside)
        alike_inside = min(
            float((o == inside).double().mean()) for o in others if o is not inside
        )
        found.append((alike_outside, alike_inside, float(inside.mean())))
    again = region.seed(4), nn.Dropout(0.25)(x), Dropout(0.25, region)(x)
    repeated = bool((again[1] == outside).all() and (again[2] == inside).all())
    return found, repeated


def place_norms(rank, size):
    """Return what deep stacks give through, and how far both placements are off split."""
    found = {}
    for norm_first in (True, False):
        torch.manual_seed(0)
        x, slope = torch.randn(2, 2, 8, WIDTH)
        blocks = [
            Block(WIDTH, HEADS, KV_HEADS, INNER, norm_first=norm_first)
            for _ in range(4)
        ]
        plan = {
            f"{at}.{path}": how
            for at in range(4)
            for path, how in plan_block(HEADS).items()
        }
        stack = nn.Sequential(*blocks)
        off = differences(stack, x, slope, plan, Region(rank, size))
        y, _ = run(stack, x, slope)
        found[norm_first] = max(off.values()), y
    return found[True][0], found[False][0], away(found[True][1], found[False][1])


class Counting(Region):
    """A region that counts its exchanges."""

    counted = 0

    def total(self, x, operation=dist.ReduceOp.SUM):
        Counting.counted += 1
        return super().total(x, operation)


def count(rank, size):
    """Return a block's exchanges forward and backward; keys and values have own layers."""
    block = Block(WIDTH, 4, 4, INNER)
    split(block, plan_block(4), Counting(rank, size))
    y = block(torch.randn(2, 8, WIDTH, requires_grad=True))
    forward, Counting.counted = Counting.counted, 0
    y.sum().backward()
    return forward, Counting.counted


def measure(rank, size):
    torch.set_default_dtype(torch.float64)
    works = [compare]
    if size == USUAL:
        works += [look_up, count, mislead, use_library, draw_masks, place_norms]
    return {work.__name__: work(rank, size) for work in works}


@functools.cache
def measured(size):
    """Return what all members measured: groups take long to start."""
    return run_ranks(measure, size, limit_s=120)


@pytest.mark.parametrize("size", SIZES)
def test_block_split_over_members_equals_the_whole_one(size):
    for member in measured(size):
        found = member["compare"]
        assert len(found) == 15
        assert max(found.values()) <= 1e-14, found


def test_embeddings_keep_what_else_they_do():
    for member in measured(USUAL):
        assert max(member["look_up"]) <= 1e-14
    assert [len(member["look_up"]) for member in measured(USUAL)] == [15, 4, 4, 4]


def test_block_exchanges_twice_forward_and_twice_backward():
    for member in measured(USUAL):
        forward, backward = member["count"]
        assert forward == 2
        assert backward == 2 + 2  # keys and values enter a layer of their own


def test_slices_of_unequal_length_are_refused():
    region = Region(0, 2, sequence=True)
    assert region.own_slice(torch.ones(1, 4, 3)).shape == (1, 2, 3)
    with pytest.raises(UsageError, match="STO-T040"):
        region.own_slice(torch.ones(1, 5, 3))


def test_toys_are_seen():
    for (name, seed), off in measured(USUAL)[0]["mislead"].items():
        assert (off <= 1e-14) if name == "ours" else (off >= 0.1), (name, seed, off)


def test_library_cannot_split_an_odd_width_and_ours_can():
    even, odd = measured(USUAL)[0]["use_library"]
    assert max(even) < 1e-14
    assert "reduction dim" in odd[0]
    assert odd[1] < 1e-14


def test_masks_are_alike_outside_and_differ_inside():
    for member in measured(USUAL):
        found, repeated = member["draw_masks"]
        assert repeated
        for alike_outside, alike_inside, mean in found:
            assert alike_outside
            # Two independent masks agree in 0.75² + 0.25² = 0.625 of the places.
            assert 0.55 < alike_inside < 0.7
            assert 0.9 < mean < 1.1


def test_norm_before_and_after_differ_and_both_are_split_exactly():
    for member in measured(USUAL):
        before, after, apart = member["place_norms"]
        assert max(before, after) <= 1e-14
        assert apart > 0.1

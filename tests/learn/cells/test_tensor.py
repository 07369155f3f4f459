"""A model split by a plan against the whole one: answers, training, norms, 3D."""

import copy
import functools
import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import nn

from stoilo.core.errors import UsageError
from stoilo.learn.cells.layers import Region
from stoilo.learn.cells.tensor import (
    Split,
    Tensor,
    gather,
    hold,
    measure_norm,
    split,
)
from stoilo.learn.core.models import make_shape, read_buffers, read_trained
from stoilo.learn.kernels import torch_models
from stoilo.learn.kernels.encoding import unpack
from tests.support.ranks import run_ranks
from tests.support.transformers import LanguageModel, plan_model

WORDS, LENGTH, HEADS = 33, 8, 6
USUAL = 4  # members in the usual run; the other numbers take long
SIZES = [USUAL, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 8))]
STEPS = {"steps": 2, "batch": 3, "rate": 0.1, "seed": 5}
KERNELS = [
    ("gradient", {}),
    ("evaluate", {}),
    ("local_steps", {**STEPS, "momentum": 0.9, "proximal": 0.1}),
    ("local_steps", {**STEPS, "optimizer": "adamw"}),
    ("local_steps", {**STEPS, "give": "sum"}),
]
COMPRESSED = {"codec": "compressed"}


def away(found, wanted):
    """Return the relative distance of two tensors."""
    return float((found - wanted).detach().norm() / wanted.detach().norm())


def make_model(seed=0, dropout=0.0):
    torch.manual_seed(seed)
    return LanguageModel(WORDS, LENGTH, 12, HEADS, 2, 19, dropout=dropout)


def draw(samples=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(WORDS, (2, samples, LENGTH), generator=generator)


def make_arguments(model, settings, data=None, loss=F.cross_entropy):
    x, y = draw() if data is None else data
    return {
        "model": make_shape(model),
        "loss": loss,
        "reduction": "mean",
        "parameters": read_trained(model),
        "buffers": read_buffers(model),
        "data": {"x": x.numpy(), "y": y.numpy()},
        "rows": [4, 0, 1, 3],
        "settings": settings,
        "version": 3,
        "downlink": {"told": [None], "forms": {}},
    }


def differ(found, wanted, settings, model):
    """Return the largest relative distance of two answers; inf where their form differs."""
    both, told = [], settings["transport"]
    for one in (found, wanted):
        arrays = unpack(told, one["tensors"], forms_of(model))
        both.append({name: torch.from_numpy(a) for name, a in arrays.items()})
    form = ["version", "samples", "correct"]
    same = all(found[n] == wanted[n] for n in form) and list(both[0]) == list(both[1])
    if not same or found.keys() != wanted.keys():
        return float("inf")
    loss = abs(found["loss_sum"] / wanted["loss_sum"] - 1)
    return max([loss, *(away(both[0][n], both[1][n]) for n in both[0])])


def forms_of(model):
    return {n: (a.dtype.str, a.shape) for n, a in read_trained(model).items()}


def answer(rank, size):
    """Return how far each kernel's answers by the layout are off."""
    links, off = SimpleNamespace(rank=rank, size=size, group=None), {}
    for sequence in (False, True):
        usual = KERNELS[0:3:2] if sequence else KERNELS[:3]
        for number, (kernel, settings) in enumerate(KERNELS if size == 2 else usual):
            told = {**settings, "transport": COMPRESSED}
            given = make_arguments(make_model(), told)
            whole = getattr(torch_models, kernel)(copy.deepcopy(given))
            found = Tensor(plan_model(HEADS), sequence).execute(kernel, given, links)
            if rank == 0:
                off[number, sequence] = differ(found, whole, told, make_model())
            elif found is not None:
                off[number, sequence] = float("inf")
    return off


def classify(rank, size):
    """Return whether labels and what was right are those of the whole model."""
    model = nn.Sequential(nn.Linear(7, 12), nn.Tanh(), nn.Linear(12, 5, bias=False))
    data = torch.randn(5, 7), torch.randint(5, (5,))
    links, same = SimpleNamespace(rank=rank, size=size, group=None), []
    loss = nn.CrossEntropyLoss(label_smoothing=0.1)
    for last in ("vocabulary", "whole"):
        given = make_arguments(model, {"labels": True}, data, loss)
        wanted = torch_models.evaluate(copy.deepcopy(given))
        plan = {"0": "whole", "2": last}
        found = Tensor(plan).execute("evaluate", given, links)
        if rank == 0:
            labels = found["tensors"]["labels"] == wanted["tensors"]["labels"]
            same.append(bool(labels.all()) and found["correct"] == wanted["correct"])
    return same


def train(rank, size):
    """Return how far norms, weights before and weights after two clipped steps are off."""
    whole, member = make_model(), make_model()
    region = Region(rank, size)
    shares = split(member, plan_model(HEADS), region)
    first = gather(dict(member.named_parameters()), shares, region)
    same = all(bool((first[n] == p).all()) for n, p in whole.named_parameters())
    norms, sgd = [], [torch.optim.SGD(m.parameters(), 0.5) for m in (whole, member)]
    for step in range(2):
        x, y = draw(seed=step)
        for model, one in zip((whole, member), sgd, strict=True):
            one.zero_grad()
            F.cross_entropy(model(x), y).backward()
        norm = measure_norm(member, shares, region)
        everybody = sum(p.grad.square().sum() for p in member.parameters())
        toy = region.total(everybody).sqrt()  # what is whole counts p times
        nn.utils.clip_grads_with_norm_(member.parameters(), 0.1, norm)
        wanted = nn.utils.clip_grad_norm_(whole.parameters(), 0.1)
        everybody = sum(p.grad.square().sum() for p in member.parameters())
        toy = (
            region.total(everybody).sqrt() * norm / 0.1
        )  # what is whole counts p times
        norms.append((away(norm, wanted), away(toy, wanted)))
        for one in sgd:
            one.step()
    last = gather(dict(member.named_parameters()), shares, region)
    off = max(away(last[n], p.detach()) for n, p in whole.named_parameters())
    return norms, (same, off) if rank == 0 else (True, 0.0)


SEEN = []


class Remembering(nn.LayerNorm):
    """A normalisation that remembers what it was given."""

    def forward(self, x):
        SEEN.append(x.detach().clone())
        return super().forward(x)


def drop(rank, size):
    """Return whether members see the same where all is whole; and where nobody made it so."""
    model, before = make_model(dropout=0.3), torch.get_rng_state()
    model.norm = Remembering(12)
    links = SimpleNamespace(rank=rank, size=size, group=None)
    torch.manual_seed(rank)
    state = torch.get_rng_state()
    Tensor(plan_model(HEADS)).execute("gradient", make_arguments(model, {}), links)
    kept = rank == 0 or bool((torch.get_rng_state() == state).all())
    split(model, plan_model(HEADS), Region(rank, size))
    torch.manual_seed(rank)
    model(draw()[0])
    torch.set_rng_state(before)
    same = []
    for seen in SEEN:
        others = [torch.empty_like(seen) for _ in range(size)]
        dist.all_gather(others, seen)
        same.append(all(bool((one == others[0]).all()) for one in others))
    return kept, same


def write(rank, size):
    """Return the example's loss and norms of a few steps; of rank 0 also by it alone."""
    sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
    script = importlib.import_module("language_model")
    regions = [Region(rank, size), *([Region(0, 1)] if rank == 0 else [])]
    return [script.train_split(region, steps=4)[:2] for region in regions]


def measure(rank, size):
    torch.set_default_dtype(torch.float64)
    works = (answer, classify, train, drop, write) if size == USUAL else (answer,)
    return {work.__name__: work(rank, size) for work in works}


@functools.cache
def measured(size):
    """Return what all members measured: groups take long to start."""
    return run_ranks(measure, size, limit_s=120)


@pytest.mark.parametrize("size", SIZES)
def test_answers_of_a_split_model_are_the_whole_ones(size):
    first, *others = [member["answer"] for member in measured(size)]
    assert not any(others)
    assert len(first) == (10 if size == 2 else 5)
    assert max(first.values()) <= 1e-13, first


def test_labels_are_found_among_all_classes():
    assert measured(USUAL)[0]["classify"] == [True, True]


def test_two_clipped_steps_of_four_members_equal_those_of_one():
    for member in measured(USUAL):
        norms, (same, off) = member["train"]
        assert same
        assert off <= 1e-12
        for ours, toy in norms:
            assert ours <= 1e-13
            assert toy > 0.1


def test_masks_outside_are_alike_whatever_members_drew_before():
    for member in measured(USUAL):
        kept, same = member["drop"]
        assert kept
        assert same == [True, False]


def test_example_trains_the_same_whole_and_split():
    (split_up, alone), *others = [member["write"] for member in measured(USUAL)]
    assert others == [[split_up]] * (USUAL - 1)
    assert split_up[0] == pytest.approx(alone[0], rel=1e-9)
    assert split_up[1] == pytest.approx(alone[1], rel=1e-9)


def advance(model, stage, x):
    """Return what a stage of two makes of what it gets."""
    if stage == 0:
        return model.blocks[0](model.embed(x) + model.places(torch.arange(LENGTH)))
    return model.head(model.norm(model.blocks[1](x))).transpose(1, 2)


def step_stage(model, stage, peer, x, y):
    """Run two micro-batches through one stage: all forward, then all backward."""
    done = []
    for tokens, wanted in zip(x.split(2), y.split(2), strict=True):
        given = tokens
        if stage:
            given = torch.empty(2, LENGTH, 12)
            dist.recv(given, peer)
            given.requires_grad_()
        made = advance(model, stage, given)
        if stage:
            done.append((given, F.cross_entropy(made, wanted) / 2))
        else:
            dist.send(made.detach(), peer)
            done.append((given, made))
    for given, made in done:
        slope = None
        if not stage:
            slope = torch.empty_like(made)
            dist.recv(slope, peer)
        made.backward(slope)
        if stage:
            dist.send(given.grad, peer)


@torch.no_grad()
def move(parameters, memory):
    """Make a step with momentum, without torch.optim, which takes a second to load."""
    for p in parameters:
        memory[p] = 0.9 * memory.get(p, 0.0) + p.grad
        p.sub_(0.5 * memory[p])


def combine(rank, _):
    """Train two steps on 2 stages by 2 replicas by 2 members; how far the weights are off."""
    torch.set_default_dtype(torch.float64)
    stage, replica, member = rank // 4, rank // 2 % 2, rank % 2
    tensor = [dist.new_group([2 * g, 2 * g + 1]) for g in range(4)][rank // 2]
    data = [
        dist.new_group([4 * (g // 2) + g % 2 + k for k in (0, 2)]) for g in range(4)
    ]
    stages = [dist.new_group([g, g + 4]) for g in range(4)][rank % 4]
    whole, model = make_model(), make_model()
    for one in (whole, model):
        one.head.weight = nn.Parameter(one.embed.weight.detach().clone())
    region = Region(member, 2, tensor)
    shares = split(model, plan_model(HEADS), region)
    memory = {}
    norms = []
    for step in range(2):
        x, y = draw(8, seed=step)
        whole.zero_grad()
        model.zero_grad()
        F.cross_entropy(whole(x), y).backward()
        own = slice(4 * replica, 4 * replica + 4)
        step_stage(model, stage, (rank + 4) % 8, x[own], y[own])
        mine = [p for p in model.parameters() if p.grad is not None]
        for p in mine:
            dist.all_reduce(p.grad, group=data[2 * stage + member])
            p.grad /= 2
        norm = measure_norm(model, shares, region, stages)
        nn.utils.clip_grads_with_norm_(mine, 0.1, norm)
        norms.append(away(norm, nn.utils.clip_grad_norm_(whole.parameters(), 0.1)))
        move([*whole.parameters(), *mine], memory)
    mine = {n: p for n, p in model.named_parameters() if p.grad is not None}
    found = gather(mine, shares, region)
    off = [away(p, whole.get_parameter(n)) for n, p in found.items() if not member]
    return len(mine), max(norms), max(off, default=0.0)


def test_stages_replicas_and_members_together_equal_one_process():
    found = run_ranks(combine, 8, limit_s=120)
    assert found[0][0] + found[-1][0] == 35
    assert max(norm for _, norm, _ in found) <= 1e-13
    assert max(off for _, _, off in found) <= 1e-12


@pytest.mark.parametrize(
    ("size", "how"),
    [
        (65, Split("column", unit=2)),
        (64, Split("column", parts=(64,))),
        (64, Split("column", parts=(63, 2))),
        (64, Split("column", parts=(65, -1))),
        (8, Split("column", unit=4, queries=3)),
        (2, Split("column", unit=4)),
    ],
)
def test_parts_that_do_not_make_the_whole_are_refused(size, how):
    with pytest.raises(UsageError, match="STO-T040"):
        hold(size, how, 2)


def test_every_index_has_a_holder_and_groups_of_queries_their_heads():
    share = hold(12, Split("column", unit=2, blocks=3, parts=(2, 0)), 2)
    assert share.held == (tuple(range(12)), ())
    share = hold(8, Split("column", unit=4, parts=(1, 3, 2), queries=6), 3)
    assert share.held == (tuple(range(4)), tuple(range(8)), tuple(range(4, 8)))
    assert share.repeat == ((0,), (0, 0, 1), (0, 0))
    assert share.copied
    assert [len(share.owned(rank)) for rank in range(3)] == [4, 4, 0]


@pytest.mark.parametrize(
    "plan",
    [
        {"missing": "column"},
        {"": "column"},
        {"norm": "column"},
        {"embed": "vocabulary"},
        {"head": Split("vocabulary", parts=(3, 30)), "embed": "vocabulary"},
        {"blocks.0.up": "colum"},
        {"blocks.0.up": Split("column", parts=(19,))},
    ],
)
def test_plan_of_another_model_is_refused(plan):
    with pytest.raises(UsageError, match="STO-T040"):
        split(make_model(), plan, Region(0, 2))


def test_slices_of_sequences_want_a_whole_plan():
    plan = plan_model(HEADS)
    del plan["norm"]
    with pytest.raises(UsageError, match=r"norm\.weight"):
        split(make_model(), plan, Region(0, 2, sequence=True))

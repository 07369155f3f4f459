"""Cross-entropy of split classes against torch's, and the toy that counts its own only."""

import functools

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import nn

from stoilo.core.errors import UsageError
from stoilo.learn.cells.layers import Region
from stoilo.learn.cells.logits import Logits, cross_entropy
from stoilo.learn.cells.tensor import Split, hold
from tests.support.ranks import run_ranks

CLASSES, TOKENS = 50, 24
USUAL = 3  # members in the usual run, one without classes; the other numbers take long
SIZES = [USUAL, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 8))]
PARTS = {1: (50,), 2: (33, 17), 3: (20, 0, 30), 8: (1, 0, 9, 20, 3, 7, 0, 10)}
GIVEN = [
    {},
    {"label_smoothing": 0.1},
    {"ignore_index": 7, "label_smoothing": 0.1},
    {"reduction": "sum"},
    {"reduction": "none", "ignore_index": 7},
]


def away(found, wanted):
    return float((found - wanted).detach().norm() / wanted.detach().norm())


def compare(region, share, scale):
    """Return how far losses and gradients of five draws and all options are off."""
    off = []
    for seed in range(5):
        torch.manual_seed(seed)
        logits = (scale * torch.randn(TOKENS, CLASSES)).requires_grad_()
        target = torch.randint(CLASSES, (TOKENS,))
        target[::4] = 7
        part = share.take(logits.detach(), region.rank).requires_grad_()
        for given in GIVEN:
            loss = F.cross_entropy(Logits.of(part, region, share), target, **given)
            wanted = F.cross_entropy(logits, target, **given)
            (slope,) = torch.autograd.grad(loss.sum(), part)
            (whole,) = torch.autograd.grad(wanted.sum(), logits)
            mine = share.take(whole, region.rank)
            apart = float((slope - mine).norm() / whole.norm())
            off.append(max(away(loss.detach(), wanted.detach()), apart))
    return max(off) if torch.tensor(off).isfinite().all() else float("inf")


def judge_images(region, share):
    """Return how far the loss class of (batch, classes, length) is off, and the labels."""
    torch.manual_seed(0)
    logits = torch.randn(2, CLASSES, 12)
    logits[:, 3] = logits[:, 20] = logits.amax(1)  # a draw: the first counts
    target = torch.randint(CLASSES, (2, 12))
    part = Logits.of(share.take(logits, region.rank), region, share)
    loss = nn.CrossEntropyLoss(label_smoothing=0.2)
    same = bool((part.argmax(1) == logits.argmax(1)).all())
    rows = part.transpose(1, 2).flatten(0, 1)
    again = F.cross_entropy(rows, target.flatten(), label_smoothing=0.2)
    wanted = loss(logits, target)
    return away(loss(part, target), wanted), away(again, wanted), same


def count_own(region, share):
    """Return how far smoothing over one's own classes is off, as a public library had it."""
    off = []
    for seed in range(5):
        torch.manual_seed(seed)
        logits, target = torch.randn(TOKENS, CLASSES), torch.randint(CLASSES, (TOKENS,))
        wanted = F.cross_entropy(logits, target, label_smoothing=0.1)
        part = share.take(logits, region.rank)
        loss = cross_entropy(part, target, region, share)
        logs = part - region.total(part.exp().sum(1)).log()[:, None]
        off.append(away(0.9 * loss - 0.1 * logs.mean(), wanted))
    return min(off) if part.shape[1] else None


def refuse(region, share):
    """Return what is said of what a part cannot tell."""
    part = Logits.of(torch.zeros(4, len(share.held[region.rank])), region, share)
    classes = torch.zeros(4, dtype=torch.long)
    tries = [
        lambda: part.softmax(1),
        lambda: part + 1,
        lambda: F.cross_entropy(part, torch.zeros(4, CLASSES)),
        lambda: F.cross_entropy(part, classes, weight=torch.ones(CLASSES)),
        lambda: F.cross_entropy(part, classes[:3]),
        lambda: F.cross_entropy(part, classes + CLASSES),
    ]
    found = []
    for attempt in tries:
        try:
            found.append(attempt())
        except (UsageError, IndexError) as error:
            found.append(getattr(error, "code", type(error).__name__))
    return found


class Counting(Region):
    """A region that counts the numbers that it exchanges."""

    counted = 0

    def total(self, x, operation=dist.ReduceOp.SUM):
        Counting.counted += x.numel()
        return super().total(x, operation)


def measure(rank, size):
    torch.set_default_dtype(torch.float64)
    region = Counting(rank, size)
    share = hold(CLASSES, Split("vocabulary", parts=PARTS[size]), size, dim=1)
    found = {"near": compare(region, share, 1.0), "far": compare(region, share, 1000.0)}
    part = torch.zeros(TOKENS, len(share.held[rank]))
    Counting.counted = 0
    cross_entropy(part, torch.zeros(TOKENS).long(), region, share)
    found["numbers"] = Counting.counted
    for work in (judge_images, count_own, refuse):
        found[work.__name__] = work(region, share)
    return found


@functools.cache
def measured(size):
    """Return what all members measured: groups take long to start."""
    return run_ranks(measure, size, limit_s=120)


@pytest.mark.parametrize("size", SIZES)
def test_loss_of_split_classes_is_torchs(size):
    for found in measured(size):
        assert max(found["near"], found["far"]) <= 1e-12
        assert max(found["judge_images"][:2]) <= 1e-12
        assert found["judge_images"][2]


def test_slope_is_the_losses():
    torch.manual_seed(0)
    share = hold(5, Split("vocabulary"), 1)
    logits = torch.randn(4, 5, 3, dtype=torch.float64, requires_grad=True)
    target = torch.randint(5, (4, 3))
    given = {"ignore_index": int(target[0, 0]), "label_smoothing": 0.1}
    assert torch.autograd.gradcheck(
        lambda z: cross_entropy(z, target, Region(0, 1), share, **given), logits
    )


def test_halves_are_summed_with_room():
    torch.manual_seed(0)
    logits, target = torch.randn(4, 300).bfloat16(), torch.randint(300, (4,))
    found = cross_entropy(logits, target, Region(0, 1), hold(300, Split("column"), 1))
    assert away(found, F.cross_entropy(logits.float(), target)) < 1e-6


def test_smoothing_over_ones_own_classes_is_another_loss():
    first, none, last = [found["count_own"] for found in measured(USUAL)]
    assert none is None
    assert min(first, last) > 1e-6


def test_four_numbers_a_token_travel():
    assert {found["numbers"] for found in measured(USUAL)} == {4 * TOKENS}


def test_what_a_part_cannot_tell_is_refused_at_every_member():
    for found in measured(USUAL):
        assert found["refuse"] == [*["STO-T040"] * 5, "IndexError"]

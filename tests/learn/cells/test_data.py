"""Data parallel: what a cell answers is what the kernel alone answers."""

import copy
import os
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given as given_any
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from stoilo.core.libraries import use_types
from stoilo.learn.cells.buckets import Buckets
from stoilo.learn.cells.data import Data, Portion
from stoilo.learn.core.data import Part
from stoilo.learn.core.models import TorchModel, make_arguments, make_shape
from stoilo.learn.kernels import torch_models
from stoilo.policies.levels import load_level
from stoilo.sandbox.language.runtime import prepare_runtime
from tests.support.ranks import run_ranks

ROWS = 11  # no multiple of any size
LOCAL = {"steps": 5, "batch": 4, "rate": 0.05, "momentum": 0.9, "seed": 4}
SIZES = ((1, ROWS), (2, 1), (3, ROWS), (5, 3))  # members, rows

if getattr(sys.modules["__main__"].__spec__, "name", "") == "tests.support.ranks":
    import torch._dynamo  # optimisers want it: once, before the ranks' fork


@dataclass(frozen=True)
class Links:
    rank: int
    size: int
    group: object


class Odd(nn.Module):
    """Two inputs, sparse gradients, tied weights, a parameter that nobody uses."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(7, 5, sparse=True)
        self.one = nn.Linear(5, 5)
        self.two = nn.Linear(5, 5)
        self.two.weight = self.one.weight
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, numbers, x):
        return self.two(torch.tanh(self.one(self.words(numbers) + x)))


class Deep(nn.Module):
    """What layers do in other ways: again, later, frozen, with weights that they change."""

    def __init__(self):
        super().__init__()
        kinds = nn.Linear, nn.Linear, nn.Linear, Clipped
        self.layers = nn.ModuleList(kind(5, 5) for kind in kinds)
        self.layers[1].requires_grad_(requires_grad=False)
        self.layers.append(nn.LayerNorm(5))
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        x = x.detach().requires_grad_()
        again = self.layers[0](self.layers[0](x))
        again = checkpoint(self.layers[2], again, use_reentrant=False)
        again = self.layers[3](self.layers[1](torch.tanh(again)))
        if torch.is_grad_enabled():  # a slope's own slope
            (slope,) = torch.autograd.grad(again.sum(), x, create_graph=True)
            again = again + slope.square()
        return self.layers[4](again) * self.scale


class Clipped(nn.Linear):
    def forward(self, x):
        with torch.no_grad():
            self.weight.clamp_(-0.2, 0.2)
        return torch.tanh(super().forward(x))


def make_images():
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, bias=False), nn.BatchNorm2d(3, momentum=0.3), nn.ReLU(),
        nn.Flatten(), nn.Dropout(0.3), nn.Linear(12, 6, bias=False),
        nn.BatchNorm1d(6, momentum=None), nn.Linear(6, 4),
    )  # fmt: skip


def make_plain():
    return nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 4))


def sum_of_squares(output, y):
    return ((output - y) ** 2).sum()


def make_case(name, rows=ROWS):
    """Return a model and its part, in float64."""
    torch.manual_seed(1)
    draw = np.random.default_rng(2)
    images, wide = draw.normal(size=(rows, 1, 4, 4)), draw.normal(size=(rows, 5))
    classes, words = draw.integers(0, 4, rows), draw.integers(0, 7, rows)
    module, loss, part = {
        "plain": (make_plain(), functional.cross_entropy, Part(wide[:, :4], classes)),
        "sums": (nn.Linear(5, 5), sum_of_squares, Part(wide, wide**2)),
        "images": (make_images(), functional.cross_entropy, Part(images, classes)),
        "odd": (Odd(), functional.mse_loss, Part((words, wide), wide**2)),
        "deep": (Deep(), functional.mse_loss, Part(wide, wide**2)),
    }[name]
    reduction = "sum" if name == "sums" else "mean"
    return TorchModel(module.double(), loss, reduction), part


def arguments(name, settings, rows=ROWS):
    model, part = make_case(name, rows)
    return make_arguments(model, model.first(), part, settings)


def both(links, kernel, given, layout):
    """Return what the members answer together, and what the kernel does alone."""
    alone = getattr(torch_models, kernel)(copy.deepcopy(given))
    return layout.execute(kernel, given, links), alone


def see_float32(rank, size):
    """Return both answers in the type that most models have."""
    model, part = make_case("plain")
    model = TorchModel(model.module.float(), model.loss, model.reduction)
    part = Part(part.x.astype(np.float32), part.y)
    given = make_arguments(model, model.first(), part, {"seed": 3})
    return both(world(rank, size), "gradient", given, Data(shard=True))


WORK = {
    "gradient": ("gradient", {"seed": 3}),
    "evaluate": ("evaluate", {"labels": True}),
    "steps": ("local_steps", LOCAL),
    "steps, sums": ("local_steps", {**LOCAL, "give": "sum"}),
    "steps, adamw and pull": (
        "local_steps",
        {**LOCAL, "optimizer": "adamw", "proximal": 2.0},
    ),
}


def world(rank, size):
    return Links(rank, size, dist.group.WORLD)


def make_links(rank, size):
    """Return the links of the first `size` ranks; None at the others. All ranks call it."""
    group = dist.new_group([*range(size)])
    return Links(rank, size, group) if rank < size else None


def answer_all(rank, _, layout, names, sizes):
    found = {}
    for size, rows in sizes:
        links = make_links(rank, size)
        if links is None:
            continue
        for name in names:
            for what, (kernel, settings) in WORK.items():
                given = arguments(name, settings, rows)
                found[size, name, what] = both(links, kernel, given, layout)
    return found


def distance(one, other):
    """Return how far two answers' arrays are apart, relative to the largest number."""
    assert one.keys() == other.keys()
    return max(
        (
            np.max(np.abs(array - other[name])) / max(1.0, np.max(np.abs(other[name])))
            for name, array in one.items()
        ),
        default=0.0,
    )


def check_equal(found, alone, most=1e-12):
    for key in ("version", "samples", "correct"):
        assert found[key] == alone[key], key
    assert found["loss_sum"] == pytest.approx(alone["loss_sum"], rel=1e-12)
    assert distance(found["tensors"], alone["tensors"]) <= most
    assert distance(found["buffers"], alone["buffers"]) <= most


NAMES = ("plain", "sums", "images", "odd", "deep")


LAYOUTS = {"whole": Data(bucket_bytes=200), "in slices": Data(shard=True)}


SLOW = pytest.param("in slices", marks=pytest.mark.slow)


@pytest.mark.parametrize("layout", ["whole", SLOW])
def test_members_answer_as_the_kernel_alone(layout):
    told = run_ranks(answer_all, 5, LAYOUTS[layout], NAMES, SIZES)
    assert len(told[0]) == len(SIZES) * len(NAMES) * len(WORK)
    for found, alone in told[0].values():
        check_equal(found, alone)
    assert all(found is None for one in told[1:] for found, _ in one.values())


def add_parts(name, weigh):
    """Return the sum of what the kernel says of three portions by themselves."""
    found = {}
    for rank in range(3):
        own, given = Portion.of(ROWS, rank, 3), arguments(name, {"seed": 3})
        given["rows"] = [*range(own.first, own.end)]
        told = torch_models.gradient(given)
        for key, array in told["tensors"].items():
            found[key] = found.get(key, 0) + array * weigh(told["samples"])
    return found


def alone(name):
    return torch_models.gradient(arguments(name, {"seed": 3}))["tensors"]


def test_sums_of_portions_are_the_sum_where_rows_do_not_meet():
    assert distance(add_parts("plain", lambda _: 1), alone("plain")) <= 1e-12


def test_portions_by_themselves_are_not_enough_for_batchnorm():
    assert distance(add_parts("images", lambda _: 1), alone("images")) > 1e-2


def test_mean_of_uneven_portions_means_is_wrong():
    wrong = add_parts("plain", lambda samples: ROWS / 3 / samples)
    assert distance(wrong, alone("plain")) > 1e-3


@given_any(total=st.integers(1, 40), size=st.integers(1, 12))
def test_portions_hold_each_row_once_and_differ_by_one_at_most(total, size):
    portions = [Portion.of(total, rank, size) for rank in range(size)]
    rows = [row for one in portions for row in range(one.first, one.end)]
    assert rows == [*range(total)]
    counts = [one.end - one.first for one in portions]
    assert max(counts) - min(counts) <= 1
    assert sum(one.share for one in portions) == pytest.approx(1)
    assert all(len(one.cut(torch.zeros(total))) >= 1 for one in portions)


def learn_twice(rank, size):
    """Return the weights' bits after local steps, at this member, of two runs."""
    found = []
    for _ in range(2):
        given = arguments("images", {**LOCAL, "optimizer": "adamw"})
        Data(bucket_bytes=200).execute("local_steps", given, world(rank, size))
        found.append(b"".join(p.detach().numpy() for p in given["model"].parameters()))
    return found


def see_overlap(rank, size):
    """Return how many buckets were under way when the first layer's gradient came."""
    model = nn.Sequential(*[nn.Linear(20, 20, bias=False) for _ in range(6)])
    seen, parameters = [], [*model.parameters()]
    parameters[0].register_hook(lambda _: seen.append(len(buckets.sent)))
    buckets = Buckets(parameters, 2 * parameters[0].nbytes, world(rank, size).group)
    buckets.begin()
    model(torch.ones(3, 20) * (rank + 1)).sum().backward()
    seen.append(len(buckets.sent))
    buckets.finish()
    return seen, [float(p.grad.sum()) for p in parameters]


def see_unlike_orders(rank, size):
    """Return sums of two gradients that come in another order at each member."""
    parameters = [torch.zeros(2, requires_grad=True) for _ in range(2)]
    buckets = Buckets(parameters, 1, world(rank, size).group)
    buckets.begin()
    for p in parameters[:: 1 - 2 * (rank % 2)]:
        (p * (rank + 1)).sum().backward()
    buckets.finish()
    return [p.grad.tolist() for p in parameters]


def see_packed(rank, size):
    settings = {"transport": {"codec": "half", "kind": "float16"}}
    return both(world(rank, size), "gradient", arguments("plain", settings), Data())


def see_sealed(rank, size):
    """Return what members answer whose libraries are sealed, as a cell's are. Comes last."""
    level = load_level("tensor")
    use_types(level.travelling_types)
    prepare_runtime(level)
    given = arguments("images", LOCAL)
    links = world(rank, size)
    return [
        both(links, "local_steps", copy.deepcopy(given), layout)
        for layout in (Data(), Data(shard=True))
    ]


def look(rank, size):
    return [
        see(rank, size)
        for see in (
            learn_twice,
            see_overlap,
            see_unlike_orders,
            see_packed,
            see_float32,
            see_sealed,
        )
    ]


@pytest.fixture(scope="module")
def looked():
    return [*zip(*run_ranks(look, 3), strict=True)]


def test_weights_are_the_same_bits_at_all_members_and_in_all_runs(looked):
    assert len({bits for runs in looked[0] for bits in runs}) == 1


def test_buckets_leave_while_backward_goes_on(looked):
    assert [seen for seen, _ in looked[1]] == [[2, 3]] * 3
    assert len({tuple(sums) for _, sums in looked[1]}) == 1


def test_buckets_leave_in_one_order_whatever_order_gradients_come_in(looked):
    assert looked[2] == ([[6.0, 6.0], [6.0, 6.0]],) * 3


def test_answer_travels_as_the_order_asks(looked):
    found, alone = looked[3][0]
    forms = {name: (a.dtype, a.shape) for name, a in found["tensors"].items()}
    assert forms == {name: (a.dtype, a.shape) for name, a in alone["tensors"].items()}
    assert {kind for kind, _ in forms.values()} == {np.dtype(np.uint8)}


def test_slices_of_float32_are_summed_too(looked):
    found, alone = looked[4][0]
    assert distance(found["tensors"], alone["tensors"]) < 1e-5


def test_members_may_have_a_sealed_torch(looked):
    for found, alone in looked[5][0]:
        check_equal(found, alone)


WIDE, DEEP = 500, 8


def measure_memory(rank, size, folder, settings):
    """Return the most memory of three layouts of one kernel, in models' sizes.

    The order's parameters lie in files, which do not count; the first run is no measure.
    """
    draw, found = np.random.default_rng(0), []
    files = [Path(folder, f"{rank}.{number}") for number in range(DEEP)]
    for file in files:
        draw.normal(size=(WIDE, WIDE), scale=0.04).tofile(file)
    for layout in (Data(shard=True), Data(shard=True), Data()):
        modules = [nn.Linear(WIDE, WIDE, bias=False) for _ in files]
        model = make_shape(nn.Sequential(*modules).double())
        del modules
        whole = {
            f"{n}.weight": np.memmap(file, np.float64, "r+", shape=(WIDE, WIDE))
            for n, file in enumerate(files)
        }
        rows = np.ones((size, WIDE))
        given = {
            "model": model, "loss": functional.mse_loss, "reduction": "mean",
            "parameters": whole, "buffers": {}, "data": {"x": rows, "y": rows},
            "rows": None, "settings": settings, "version": 0,
        }  # fmt: skip
        with peak_memory() as peak:
            layout.execute("local_steps", given, world(rank, size))
        found.append(peak[0] / (WIDE * WIDE * DEEP * 8))
        del given, model, whole
    return found[1:]


@contextmanager
def peak_memory():
    """Give a list whose number is, at the end, the most memory above that of the start."""

    def read():
        told = Path("/proc/self/status").read_text().partition("RssAnon:")[2]
        return int(told.split()[0]) * 1024

    before, most, done = read(), [0], threading.Event()

    def watch():
        while not done.wait(0.001):
            most[0] = max(most[0], read() - before)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield most
    finally:
        done.set()
        watching.join()


@pytest.mark.slow
def test_members_with_slices_never_hold_what_whole_ones_do(tmp_path):
    settings = {"steps": 2, "batch": 0, "rate": 0.01, "seed": 1, "optimizer": "adamw"}
    told = run_ranks(measure_memory, 4, str(tmp_path), settings)
    # Weights, gradients and two moments: four models' sizes where nothing is in slices.
    assert all(whole > 4 for _, whole in told)
    assert all(slices < 0.4 * whole for slices, whole in told)


class Failing(nn.Linear):
    """Rank 1 does not come through its second pass as the others do."""

    def forward(self, x):
        self.passes = getattr(self, "passes", 0) + 1
        if self.passes == 2 and dist.get_rank() == 1:
            self.fail()
        return super().forward(x)


def lose_a_member(rank, size, fail, limit_s):
    """Return how long it took until a call ended in an error, s."""
    given = arguments("sums", LOCAL)
    given["model"] = Failing(5, 5).double()
    given["model"].fail = fail
    group = dist.new_group(timeout=timedelta(seconds=limit_s))
    began = time.monotonic()
    with pytest.raises(RuntimeError):
        Data().execute("local_steps", given, Links(rank, size, group))
    return time.monotonic() - began


def die():
    os._exit(1)


def be_silent():
    time.sleep(5)


def test_members_of_one_that_dies_end_in_an_error_long_before_the_limit():
    with pytest.raises(
        AssertionError
    ) as raised:  # within 15 s: they ended by themselves
        run_ranks(lose_a_member, 3, die, 60, limit_s=15)
    assert raised.value.args[0] == {1: "died or hung"}


@pytest.mark.slow
def test_members_of_one_that_is_silent_end_within_the_limit():
    took = run_ranks(lose_a_member, 3, be_silent, 1, limit_s=30)
    assert all(1 <= one < 5 for one in (took[0], took[2]))

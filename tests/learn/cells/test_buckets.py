"""Slices of parameters: what is whole when, and what a model's own source gets hold of."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from stoilo.core.errors import UsageError
from stoilo.learn.cells import buckets
from stoilo.learn.cells.data import Data
from tests.learn.cells.test_data import world
from tests.support.ranks import run_ranks

WIDE = 64


class Keeping(nn.Linear):
    """Keeps what it sees of its own weight."""

    def forward(self, x):
        self.kept = self.weight, self.weight.detach(), self.weight.view(-1)
        self.sum = self.weight.sum().item()
        return super().forward(x)


class Net(nn.Module):
    """Looks at its layers' weights between calls.

    Attributes:
        held: bytes of weights before each call: slices, and what is whole.
        far: weights of layers that do not compute, as they look from outside.
        later: sums of what the first layer kept.
    """

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Keeping(WIDE, WIDE) for _ in range(6))
        self.held, self.far, self.later = [], [], []

    def forward(self, x):
        for layer in self.layers:
            layer.register_forward_pre_hook(self.count)
            x = torch.tanh(layer(x))
            # as another module would see it
            self.far.append(layer.weight.detach().clone())
        _, detached, flat = self.layers[0].kept
        self.later += [detached.sum().item(), flat.sum().item()]
        return x

    def count(self, *_):
        storages = [p.untyped_storage() for p in self.parameters()]
        self.held.append(sum(one.nbytes() for one in storages))


def order(model, rows=8):
    """Return a kernel's arguments for a model in float64."""
    torch.manual_seed(5)
    model = model.double()
    named = model.named_parameters()
    wide = torch.randn(rows, WIDE).double().numpy()
    return {
        "model": model, "loss": functional.mse_loss, "reduction": "mean",
        "parameters": {name: p.detach().clone().numpy() for name, p in named},
        "buffers": {}, "data": {"x": wide, "y": wide}, "rows": None,
        "settings": {"seed": 1}, "version": 0,
    }  # fmt: skip


def execute(rank, size, model, kernel="gradient"):
    return Data(shard=True).execute(kernel, order(model), world(rank, size))


def look(rank, size):
    model = Net()
    execute(rank, size, model)
    largest = max(float(one.abs().nan_to_num(0).max()) for one in model.far)
    return model.held, model.layers[0].sum, model.later, largest


def free_as_fsdp2(slices, layer, drop=buckets.Slices._drop):
    """Free memory that tensors stand on."""
    wholes = layer.wholes
    drop(slices, layer)
    for whole in wholes.values():
        whole.untyped_storage().resize_(0)


class Uncalled(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDE, WIDE)])

    def forward(self, x):
        return functional.linear(x, self.layers[0].weight)


class Unlike(nn.Module):
    """Calls its layers in another order at each member."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDE, WIDE) for _ in range(2))

    def forward(self, x):
        turned = self.layers[:: 1 - 2 * (dist.get_rank() % 2)]
        return turned[1](turned[0](x))


def refuse(rank, size, made, kernel):
    with pytest.raises(UsageError) as raised:
        execute(rank, size, made(), kernel)
    return f"{raised.value.code}: {raised.value.message}"


REFUSED = (Uncalled, "gradient"), (Unlike, "gradient"), (Unlike, "evaluate")


def look_and_refuse(rank, size):
    return look(rank, size), [refuse(rank, size, *one) for one in REFUSED]


@pytest.fixture(scope="module")
def looked():
    return run_ranks(look_and_refuse, 2)


def test_one_layer_is_whole_and_what_a_class_keeps_of_it_stays_as_it_was(looked):
    layer = (WIDE * WIDE + WIDE) * 8
    for (held, total, later, largest), _ in looked:
        assert held == [layer + 5 * 2 * 8] * len(held)  # outside: one number each
        assert later == [pytest.approx(total)] * 2
        assert largest == 0  # NaN alone


def look_at_freed(rank, size):
    buckets.Slices._drop = free_as_fsdp2
    return look(rank, size)


@pytest.mark.slow
def test_memory_that_is_freed_below_a_kept_tensor_ends_the_process():
    with pytest.raises(AssertionError) as raised:
        run_ranks(look_at_freed, 1, limit_s=30)
    assert raised.value.args[0] == {0: "died or hung"}


def test_model_whose_layers_cannot_be_collected_is_refused(looked):
    for _, (uncalled, *unlike) in looked:
        assert uncalled.startswith("STO-T040: a layer in a")
        assert unlike == ["STO-T040: members did not call the same layers in turn"] * 2

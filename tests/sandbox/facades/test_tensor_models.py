"""Modules and optimisers as arguments: the same objects inside."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from stoilo.client.capture import capture_calls, capture_task
from stoilo.core.codec import skeleton
from stoilo.core.codec.nodes import Tensor, from_node, to_node
from stoilo.policies.levels import load_level
from stoilo.sandbox.facades import tensor_models  # noqa: F401 - as the façade of torch does
from stoilo.sandbox.process.channel import TaskRequest
from stoilo.sandbox.process.report import read_items
from stoilo.sandbox.process.run import run_task

pytestmark = pytest.mark.usefixtures("caches_of_torch")


def execute(jail, source, entry, arguments, blobs=()):
    request = TaskRequest(source, entry, arguments, blobs, now=1)
    return run_task(jail, request, load_level("tensor").default_limits())


def is_close(one, other):
    """Whether two nodes are the same but for the last bits of floats.

    This process has other instructions and threads than a jail; bit for bit is
    test_training_programs'.
    """
    if isinstance(one, float):
        return one == pytest.approx(other, rel=1e-4, abs=1e-6)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(is_close, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(is_close(one[k], other[k]) for k in one)
    if isinstance(one, Tensor):
        return torch.allclose(from_node(one), from_node(other), rtol=1e-4, atol=1e-6)
    return one == other


def assert_same(jail, function, kwargs):
    """Run captured in the jail and plainly here; return the plain answer."""
    task = capture_task(function, kwargs)
    outcome = execute(jail, task.task_module, task.entry, task.arguments, task.blobs)
    assert outcome.status.value == "ok", outcome
    expected = to_node(function(kwargs))
    assert is_close(skeleton.decode(outcome.value), expected)
    return expected


# Honest objects


class Layers(nn.Module):
    """One of every kind of state."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 4)
        self.again = self.fc
        self.tied = nn.Linear(3, 4, bias=False)
        self.tied.weight = self.fc.weight
        self.conv = nn.Conv1d(4, 4, 3, padding=1, padding_mode="circular")
        self.norm = nn.BatchNorm1d(4)
        self.rnn = nn.LSTM(4, 4, 2, batch_first=True, bidirectional=True)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.encode = nn.TransformerEncoderLayer(8, 2, 8, 0.0, batch_first=True)
        self.lists = nn.ParameterList([nn.Parameter(torch.ones(1))])
        self.named = nn.ParameterDict(
            {"a": nn.Parameter(torch.ones(1), requires_grad=False)}
        )
        self.parts = nn.ModuleDict({"out": nn.Sequential(nn.Linear(8, 2), nn.Tanh())})
        self.register_buffer("kept", torch.arange(2.0))
        self.register_buffer("lost", torch.ones(1), persistent=False)
        self.register_parameter("none", None)
        self.act, self.act2 = torch.relu, nn.functional.gelu
        self._scale, self.kind, self.size = 2.0, torch.float32, torch.Size([1, 2])
        self.where = torch.device("cpu")

    def forward(self, x):
        h = self.fc(x) + self.again(x) * self._scale + self.tied(x)
        h = self.norm(self.conv(h.transpose(1, 2))).transpose(1, 2)
        h, _ = self.rnn(self.act(h))
        h = self.encode(self.attend(h, h, h)[0])
        h = self.act2(self.parts["out"](h.to(self.kind)))
        return h + self.lists[0] * self.named["a"] + self.kept + self.lost


def look(kwargs):
    net = kwargs["net"]
    return {
        "y": net(kwargs["x"]),
        "state": net.state_dict(),
        "names": [(name, p.requires_grad) for name, p in net.named_parameters()],
        "shared": (net.again is net.fc, net.tied.weight is net.fc.weight),
        "modes": [module.training for module in net.modules()],
        "text": repr(net),
        "plain": (str(net.kind), tuple(net.size), str(net.where), net.none is None),
    }


def one_step(kwargs):
    model, optimizer = kwargs["model"], kwargs["optimizer"]
    before = [p.detach().clone() for p in model.parameters()]
    loss = (model(kwargs["x"]) - 1).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    moved = [
        not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)
    ]
    return loss.item(), moved, model.state_dict(), optimizer.state_dict()


class Descent(torch.optim.Optimizer):
    """Gradient descent with a memory."""

    def __init__(self, params, lr=0.1):
        self.calls = 0
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self):
        self.calls += 1
        for group in self.param_groups:
            for p in group["params"]:
                memory = self.state[p].setdefault("memory", torch.zeros_like(p))
                memory.mul_(0.5).add_(p.grad)
                p.sub_(memory, alpha=group["lr"] * self.calls)


def make_pair(kind, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = kind(model.parameters(), **options)
    kwargs = {"model": model, "optimizer": optimizer, "x": torch.randn(5, 3)}
    one_step(kwargs)
    optimizer.zero_grad()
    return kwargs


@pytest.mark.parametrize("training", [True, False])
def test_module_of_every_kind_of_state_arrives_as_it_was(tensor_jail, training):
    torch.manual_seed(0)
    net = Layers().train(training)
    x = torch.randn(2, 5, 3)
    answer = assert_same(tensor_jail, look, {"net": net, "x": x})
    assert answer["shared"] == (True, True)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
        (torch.optim.Adam, {"lr": 0.01, "amsgrad": True}),
        (torch.optim.AdamW, {"lr": 0.01, "betas": (0.8, 0.9)}),
        (Descent, {"lr": 0.2}),
    ],
)
def test_optimizer_goes_on_with_its_model(tensor_jail, kind, options):
    kwargs = make_pair(kind, **options)
    answer = assert_same(tensor_jail, one_step, kwargs)
    assert all(answer[1])
    turned = dict(reversed(kwargs.items()))
    assert assert_same(tensor_jail, one_step, turned)[1] == answer[1]


def test_large_model_goes_through_a_blob_and_stays_shared(tensor_jail):
    torch.manual_seed(0)
    model = nn.Linear(300, 300)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kwargs = {"optimizer": optimizer, "model": model, "x": torch.randn(2, 300)}
    assert capture_task(one_step, kwargs).blobs
    assert all(assert_same(tensor_jail, one_step, kwargs)[1])


def test_items_of_a_map_share_nothing(tensor_jail):
    weight = nn.Parameter(torch.ones(2))
    calls = [{"w": weight, "again": weight}, {"w": weight, "again": weight}]

    def add(kwargs):
        kwargs["w"].data.add_(1)
        return kwargs["again"].detach()

    task = capture_calls(add, calls).pack_items([0, 1])
    request = TaskRequest(task.task_module, task.entry, task.arguments, now=1, items=2)
    report = tensor_jail.run(request.encode(), load_level("tensor").default_limits())
    values = [skeleton.decode(one.value) for one in read_items(report, 2)]
    assert [from_node(value).tolist() for value in values] == [[2, 2], [2, 2]]


def test_global_model_is_the_one_that_an_argument_shares(tensor_jail):
    model = nn.Linear(1, 1)

    def check(kwargs):
        return kwargs["w"] is model.weight

    task = capture_task(check, {"w": model.weight})
    outcome = execute(tensor_jail, task.task_module, task.entry, task.arguments)
    assert skeleton.decode(outcome.value) is True


# Any module at all


def trees(pool):
    """Modules over a pool of leaves, so that some of them stand in several places."""
    leaves = st.sampled_from(pool)
    wrap = st.sampled_from([nn.ModuleList, lambda parts: nn.Sequential(*parts)])
    return st.recursive(
        leaves,
        lambda inner: st.builds(
            lambda make, parts, training: make(parts).train(training),
            wrap,
            st.lists(inner, max_size=3),
            st.booleans(),
        ),
        max_leaves=6,
    )


def make_pool():
    layers = [
        nn.Linear(1, 2),
        nn.BatchNorm1d(2),
        nn.GRU(1, 1),
        nn.PReLU(),
        nn.Embedding(2, 1),
    ]
    layers.append(nn.Linear(2, 1))
    layers[-1].weight = nn.Parameter(layers[0].weight.detach().T, requires_grad=False)
    tied = nn.Linear(1, 2, bias=False)
    tied.weight = layers[0].weight
    return [*layers, tied]


def shape_of(model):
    """Names, numbers and which places hold the same object."""
    seen = {}
    entries = [*model.named_modules(remove_duplicate=False)]
    entries += [*model.named_parameters(remove_duplicate=False)]
    places = [(name, seen.setdefault(id(value), len(seen))) for name, value in entries]
    numbers = {name: value.tolist() for name, value in model.state_dict().items()}
    kinds = [(type(part), part.training) for part in model.modules()]
    return places, numbers, kinds, [p.requires_grad for p in model.parameters()]


@given(trees(make_pool()))
def test_any_module_arrives_with_its_shape(binding, model):
    task = capture_task(look, {"net": model, "x": 1})
    made = binding(skeleton.decode(task.arguments)["net"])
    assert shape_of(made) == shape_of(model)

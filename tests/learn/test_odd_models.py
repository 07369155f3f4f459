"""Models and losses that are not (samples, features) → (samples, classes) in float32."""

import copy
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from stoilo.core.errors import UsageError
from stoilo.learn.core.data import Part
from stoilo.learn.core.models import ArrayModel, TorchModel
from stoilo.learn.methods.base import LocalWork
from stoilo.learn.methods.buffers import Layer, Momenta, find_momentum
from stoilo.learn.methods.federated import FederatedSettings
from stoilo.learn.methods.optimizers import TorchOptimizer
from stoilo.learn.trainers.dpbgd import DPBGDOptions, DPBGDTrainer
from stoilo.learn.trainers.named import FedAvgTrainer

LOSS = nn.functional.cross_entropy
WORK = FederatedSettings(2, LocalWork(rate=0.1, batch=8))


class Answer(NamedTuple):
    scores: torch.Tensor
    middle: torch.Tensor


class Fork(nn.Module):
    """Two inputs, an answer of two parts, one layer used twice, one never."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(4, 5), nn.Linear(3, 5)
        self.again = self.one
        self.unused = nn.Linear(2, 2)
        self.out = nn.Linear(5, 3)
        self.register_buffer("nothing", None)

    def forward(self, a, b):
        middle = torch.tanh(self.one(a) + self.other(b) + self.again(a))
        return Answer(self.out(middle), middle)


def fork_loss(answer, y):
    return LOSS(answer.scores, y) + 0.01 * answer.middle.square().mean()


def make_data(samples=24):
    random = torch.Generator().manual_seed(0)
    a, b = (torch.randn(samples, width, generator=random) for width in (4, 3))
    return (a, b), a[:, :3].argmax(1)


def step_alone(model, loss, x, y, rate):
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    loss(model(*x) if isinstance(x, tuple) else model(x), y).backward()
    optimizer.step()
    return {name: p.detach() for name, p in model.named_parameters()}


async def step_here(model, loss, data, tasks=3, rate=0.1, **options):
    async with DPBGDTrainer(
        None, model, loss, torch.optim.SGD, {"lr": rate}, data,
        options=DPBGDOptions(tasks=tasks, **options),
    ) as trainer:  # fmt: skip
        return await trainer.train_epoch()


async def test_two_inputs_and_an_answer_of_two_parts_step_as_alone():
    torch.manual_seed(1)
    model, (x, y) = Fork(), make_data()
    alone = step_alone(copy.deepcopy(model), fork_loss, x, y, 0.1)
    await step_here(model, fork_loss, (x, y))
    for name, p in model.named_parameters():
        assert torch.allclose(p, alone[name], atol=1e-6), name


async def test_batches_of_two_inputs_come_from_a_loader():
    torch.manual_seed(1)
    model, (x, y) = Fork(), make_data()
    alone = step_alone(copy.deepcopy(model), fork_loss, x, y, 0.1)
    pairs = [((a, b), t) for a, b, t in zip(*x, y, strict=True)]
    loader = torch.utils.data.DataLoader(pairs, batch_size=7)
    async with DPBGDTrainer(
        None, model, fork_loss, torch.optim.SGD, {"lr": 0.1}
    ) as trainer:
        await trainer.epoch(loader)
    assert torch.allclose(model.one.weight, alone["one.weight"], atol=1e-6)


async def test_local_steps_take_tuples_too():
    torch.manual_seed(1)
    model, (x, y) = Fork(), make_data()
    async with FedAvgTrainer(
        None, TorchModel(model, fork_loss), (x, y), WORK
    ) as trainer:
        trained = await trainer.train()
    assert trained.epochs[-1].average_loss < trained.epochs[0].average_loss


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
async def test_half_precision_is_trained_with_sums_in_single(kind):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).to(kind)
    (x, _), y = make_data(240)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}

    def loss(output, target):
        return LOSS(output.float(), target)

    class Halved(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = model

        def forward(self, values):
            return self.body(values.to(self.body[0].weight.dtype))

    form = TorchModel(Halved(), loss)
    assert {str(a.dtype) for a in form.first().parameters.values()} == {"float32"}
    _, first = await step_here(form.module, loss, (x, y), rate=0.5)
    assert model[0].weight.dtype is kind
    assert not torch.equal(model[0].weight, before["0.weight"])
    assert np.isfinite(first)


def test_half_precision_loss_of_many_samples_does_not_overflow():
    """The control: 300 losses of 250 each, added up in float16, are infinite."""
    x = np.full((300, 1), 250.0, np.float16)
    assert torch.tensor(x).sum().isinf()
    model = TorchModel(nn.Linear(1, 1, bias=False).half(), lambda out, _: out.mean())
    weight = {"weight": np.ones((1, 1), np.float32)}
    kwargs = {**model.constants(), "parameters": weight, "buffers": {}}
    kwargs |= {"data": {"x": x, "y": x}, "rows": None, "settings": {}, "version": 0}
    found = model.kernel("gradient")(copy.deepcopy(kwargs))
    assert found["loss_sum"] == pytest.approx(75_000)
    assert found["tensors"]["weight"] == pytest.approx(75_000)


async def test_sparse_gradients_are_filled_with_their_zeros():
    torch.manual_seed(1)
    words = torch.arange(24) % 6

    def make(sparse):
        torch.manual_seed(1)
        return nn.Sequential(nn.Embedding(9, 4, sparse=sparse), nn.Linear(4, 3))

    alone = step_alone(make(sparse=False), LOSS, words, words % 3, 0.5)
    model, _ = await step_here(make(sparse=True), LOSS, (words, words % 3), rate=0.5)
    assert torch.allclose(model[0].weight, alone["0.weight"], atol=1e-6)


async def test_tied_frozen_and_absent_stay_what_they_are():
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Embedding(6, 4), nn.Linear(4, 4), nn.Linear(4, 6, bias=False)
    )
    model[2].weight = model[0].weight
    model[1].weight.requires_grad_(requires_grad=False)
    words, frozen = torch.arange(24) % 6, model[1].weight.clone()
    alone = step_alone(copy.deepcopy(model), LOSS, words, words, 0.5)
    assert [*TorchModel(model, LOSS).first().parameters] == ["0.weight", "1.bias"]
    await step_here(model, LOSS, (words, words), rate=0.5)
    assert model[2].weight is model[0].weight
    assert torch.allclose(model[0].weight, alone["0.weight"], atol=1e-6)
    assert torch.equal(model[1].weight, frozen)


async def test_batch_of_one_sample_goes_by_the_running_statistics():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    (x, _), y = make_data(25)
    loader = list(zip(x.split(24), y.split(24), strict=True))
    async with DPBGDTrainer(None, model, LOSS, torch.optim.SGD, {"lr": 0.1}) as trainer:
        model, _ = await trainer.epoch(loader)
    assert int(model[1].num_batches_tracked) == 1
    with pytest.raises(ValueError, match="more than 1 value"):
        model.train()(x[:1])


def test_momenta_are_those_of_each_layer_that_keeps_statistics():
    model = nn.Sequential(
        nn.InstanceNorm1d(2, momentum=0.7),
        nn.BatchNorm1d(2, momentum=0.3),
        nn.BatchNorm1d(2, momentum=None),
    )
    momenta = find_momentum(nn.Sequential(nn.Linear(2, 2), model))
    assert momenta == Momenta((Layer("1.1", 0.3), Layer("1.2", None)))
    shares = [momenta.find(name).share(4) for name in ("1.1", "1.2", "else")]
    assert shares == [0.3, 0.25, 0.1]


@pytest.mark.parametrize("momentum", [None, 0.5, 0.0])
async def test_running_statistics_are_those_of_all_samples_whatever_the_momentum(
    momentum,
):
    torch.manual_seed(1)
    model = nn.Sequential(nn.BatchNorm1d(4, momentum=momentum), nn.Linear(4, 3))
    (x, _), y = make_data(1200)
    order = x[:, 0].argsort()  # parts that differ
    x, y = 3.0 * x[order], y[order]
    alone = copy.deepcopy(model)
    for _ in range(3):
        alone(x)
    async with DPBGDTrainer(None, model, LOSS, torch.optim.SGD, {"lr": 0.1}) as trainer:
        for _ in range(3):
            await trainer.epoch(list(zip(x.split(400), y.split(400), strict=True)))
    assert torch.allclose(trainer.model[0].running_var, alone[0].running_var, rtol=1e-4)
    assert torch.allclose(
        trainer.model[0].running_mean, alone[0].running_mean, atol=1e-4
    )


def code_of(call):
    with pytest.raises(UsageError) as caught:
        call()
    return caught.value.code, caught.value.message


def lazy():
    return nn.Sequential(nn.LazyLinear(3))


@pytest.mark.parametrize(
    ("module", "says"),
    [
        (lazy(), "0.weight has no shape"),
        (nn.Linear(2, 2, device="meta"), "device meta"),
    ],
)
def test_module_that_holds_no_numbers_here_is_named(module, says):
    code, message = code_of(lambda: TorchModel(module, LOSS))
    assert code == "STO-T001"
    assert says in message


@pytest.mark.parametrize("kind", [torch.optim.LBFGS, torch.optim.SparseAdam])
def test_optimiser_that_needs_more_than_a_gradient_is_named(kind):
    like = {"w": np.zeros(2, np.float32)}
    code, message = code_of(lambda: TorchOptimizer(kind, {}, like))
    assert code == "STO-T040"
    assert kind.__name__ in message


@pytest.mark.parametrize(
    ("loss", "given", "code"),
    [
        (nn.CrossEntropyLoss(reduction="none"), None, "STO-T001"),
        (nn.CrossEntropyLoss(reduction="sum"), "mean", "STO-T001"),
        (lambda o, y: LOSS(o, y, reduction="none"), None, "STO-T001"),
        (lambda o, y: LOSS(o, y, reduction="sum"), None, "STO-T001"),
        (LOSS, "sum", "STO-T001"),
        (lambda o, y: LOSS(o, y).item(), None, "STO-T001"),
    ],
)
def test_loss_that_is_not_what_was_said_is_refused_before_anything_is_sent(
    loss, given, code
):
    (x, _), y = make_data()

    def make():
        torch.manual_seed(1)
        FedAvgTrainer(None, TorchModel(nn.Linear(4, 3), loss, given), (x, y), WORK)

    assert code_of(make)[0] == code


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_loss_says_its_reduction_itself(reduction):
    loss = nn.CrossEntropyLoss(reduction=reduction)
    (x, _), y = make_data()
    form = TorchModel(nn.Linear(4, 3), loss)
    FedAvgTrainer(None, form, (x, y), WORK)
    assert form.reduction == reduction


def test_gradient_of_another_shape_is_refused_before_anything_is_sent():
    model = ArrayModel(
        {"w": np.zeros(4)}, lambda _, x, y: (0.0, {"w": x.T @ y[:, None]})
    )
    data = np.ones((8, 4)), np.ones(8)
    code, message = code_of(lambda: FedAvgTrainer(None, model, data, WORK))
    assert code == "STO-T001"
    assert "(4, 1)" in message


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (({"a": [1.0]}, [0]), "a dict"),
        (([[1.0, 2.0], [1.0]], [0, 1]), "inhomogeneous"),
        ((np.array(["a", "b"]), [0, 1]), "<U1"),
        ([(torch.ones(2), 0), (torch.ones(3), 1)], "shapes"),
        ([(1.0, 2.0, 0)], "a tuple of 3"),
        ([7], "a int"),
    ],
)
def test_data_that_make_no_arrays_are_named(data, says):
    model = ArrayModel({"w": np.zeros(2)}, lambda *_: (0.0, {"w": np.zeros(2)}))
    code, message = code_of(lambda: FedAvgTrainer(None, model, data, WORK))
    assert code == "STO-T004"
    assert says in message


def test_inputs_of_unequal_length_are_refused():
    code, message = code_of(lambda: Part((np.ones(2), np.ones(3)), np.ones(2)))
    assert code == "STO-T004"
    assert "2 and 3 inputs" in message

"""Level `tensor` from inside: what torch shows, refuses and does alike on every host."""

import dataclasses

import pytest

from stoilo.core.codec import skeleton
from stoilo.core.types import RunLimits
from stoilo.policies.levels import load_level
from stoilo.sandbox.language.rules import find_class, hidden_names
from stoilo.sandbox.process.channel import TASK_JOB, TaskRequest
from stoilo.sandbox.process.run import run_task
from stoilo.sandbox.process.supervisor import Jail

LIMITS = RunLimits(cpu_s=20, wall_s=60, memory_bytes=1 << 30)
HEAD = """
import copy
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import rnn
"""


class Tasks:
    """Runs sources in one warm jail of level tensor."""

    def __init__(self, jail):
        self.jail = jail

    def outcome(self, body, threads=1, seed="07" * 32, **kwargs):
        """Return the outcome of a program that ends with ``def run(k)``."""
        request = TaskRequest(HEAD + body, "run", skeleton.encode(kwargs), seed=seed)
        return run_task(
            self.jail, request, dataclasses.replace(LIMITS, threads=threads)
        )

    def value(self, body, **options):
        """Return the value of a program that must succeed."""
        outcome = self.outcome(body, **options)
        assert outcome.value is not None, outcome
        return skeleton.decode(outcome.value)

    def code(self, expression):
        """Return the code with which a program ends that only evaluates this."""
        return self.outcome(f"def run(k):\n    return str({expression})").code


@pytest.fixture(scope="module")
def tasks():
    with Jail(load_level("tensor"), TASK_JOB) as jail:
        yield Tasks(jail)


# Closed classes ---------------------------------------------------------------------


@pytest.mark.parametrize("dotted", load_level("tensor").members)
def test_every_name_that_is_not_listed_is_refused(tasks, dotted):
    hidden = hidden_names(find_class(dotted), load_level("tensor").members[dotted])
    body = """
def run(k):
    made = {"Tensor": torch.zeros(1), "Module": nn.Linear(1, 1),
            "Optimizer": torch.optim.SGD([torch.zeros(1)], 0.1)}[k["kind"]]
    reached = []
    for name in k["names"]:
        try:
            reached.append([name, str(getattr(made, name))])
        except Exception as refusal:
            assert "out of reach" in str(refusal)
    return reached
"""
    kind = dotted.rpartition(".")[2]
    assert hidden
    assert tasks.value(body, kind=kind, names=hidden) == []


def test_refusal_of_a_closed_name_says_which(tasks):
    outcome = tasks.outcome("def run(k):\n    return torch.zeros(1).to_sparse()")
    assert "'to_sparse' of a Tensor" in outcome.error


@pytest.mark.parametrize(
    "expression",
    [
        "torch.zeros(1).data_ptr()",
        "torch.zeros(1).storage()",
        "torch.zeros(1).set_()",
        "nn.Linear(1, 1)._parameters",
        "nn.Linear(1, 1).compile()",
        "torch.ones(1, requires_grad=True).sum().grad_fn._saved_self",
        "np.asarray(memoryview(bytes(8))).base",
    ],
)
def test_private_and_native_attributes_are_out_of_reach(tasks, expression):
    assert tasks.code(expression) == "STO-G101"


# Assignment -------------------------------------------------------------------------


def test_what_training_assigns_can_be_assigned(tasks):
    body = """
def run(k):
    layer = nn.Linear(2, 2)
    layer.weight.requires_grad = False
    layer.weight.grad = None
    layer.weight.data = torch.eye(2)
    layer.bias = nn.Parameter(torch.ones(2))
    layer.in_features = 2
    drop = nn.Dropout()
    drop.p = 0.25
    return [layer(torch.ones(2)).tolist(), drop.p]
"""
    assert tasks.value(body) == [[2.0, 2.0], 0.25]


@pytest.mark.parametrize(
    "statement",
    [
        "torch.zeros(1).foo = 1",
        "torch.Tensor.add = None",
        "nn.Linear.forward = None",
        "nn.Linear(1, 1).forward = None",
        "torch.optim.SGD([torch.zeros(1)], 0.1).step = None",
        "torch.float32.itemsize = 1",
        "F.relu = None",
    ],
)
def test_library_objects_keep_the_rest(tasks, statement):
    assert tasks.outcome(f"def run(k):\n    {statement}").code == "STO-G102"


# Memory -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "made",
    [
        "torch.empty(5)",
        "torch.empty((5,), dtype=torch.int64)",
        "torch.empty_like(torch.ones(5))",
        "torch.ones(1).new_empty(5)",
        "torch.ones(1).new(5)",
        "torch.Tensor(5)",
        "torch.FloatTensor(5)",
        "nn.Parameter(torch.empty(5))",
    ],
)
def test_memory_is_given_out_clean(tasks, made):
    used = "    used = torch.full((5,), 7.0)\n    del used\n"
    body = f"def run(k):\n{used}    return {made}.sum().item()"
    assert tasks.value(body) == 0


def test_array_outlives_the_data_of_its_tensor(tasks):
    body = """
def run(k):
    tensor = torch.zeros(300_000)
    array = tensor.numpy()
    tensor.data = torch.ones(1)
    array.base.data = torch.ones(1)
    others = [torch.full((300_000,), 7.0) for _ in range(4)]
    return [float(array.max()), len(others)]
"""
    assert tasks.value(body) == [0.0, 4]


def test_borrowed_buffers_are_copies(tasks):
    body = """
def run(k):
    memory = bytearray(8)
    made = [torch.frombuffer(memory, dtype=torch.uint8), torch.asarray(memory)]
    memory.extend(bytes(100))
    return [item.tolist() for item in made]
"""
    assert tasks.value(body) == [[0] * 8, [0] * 8]


def test_deepcopy_keeps_what_shares_memory_together(tasks):
    body = """
def run(k):
    whole = torch.arange(4.0)
    pair = copy.deepcopy([whole, whole[1:]])
    pair[0][1] = 9
    layer = copy.deepcopy(nn.Linear(1, 1))
    return [pair[1][0].item(), whole[1].item(), layer.weight.requires_grad]
"""
    assert tasks.value(body) == [9.0, 1.0, True]


@pytest.mark.parametrize(
    "expression",
    [
        "torch.zeros(3).as_strided((100,), (1,))",
        "F.ctc_loss(torch.zeros(5, 1, 4), torch.full((1, 3), 10**6), [5], [3])",
        "rnn.pad_packed_sequence(rnn.PackedSequence(torch.ones(3, 4), torch.tensor([2, -9])))",
        "F.max_unpool2d(torch.ones(1, 1, 2, 2), torch.full((1, 1, 2, 2), 10**9), 2)",
    ],
)
def test_arguments_that_point_outside_raise(tasks, expression):
    assert tasks.code(expression) == "STO-G200"


# Agreement --------------------------------------------------------------------------


RANDOM = """
def run(k):
    generator = torch.Generator()
    drawn = [torch.rand(2).tolist(), torch.seed(), generator.seed()]
    return [*drawn, torch.rand(2, generator=generator).tolist(), torch.initial_seed()]
"""


def test_generators_follow_the_admissions_seed(tasks):
    assert tasks.value(RANDOM) == tasks.value(RANDOM)
    assert tasks.value(RANDOM) != tasks.value(RANDOM, seed="08" * 32)


def test_default_generator_gets_no_entropy_from_the_system(tasks):
    outcome = tasks.outcome("def run(k):\n    return torch.manual_seed(1).seed()")
    again = tasks.outcome("def run(k):\n    return torch.manual_seed(1).seed()")
    assert outcome.value == again.value


def test_threads_are_those_of_the_run(tasks):
    body = """
def run(k):
    torch.set_num_threads(7)
    product = torch.ones(300, 300) @ torch.ones(300, 300)
    return [torch.get_num_threads(), product.sum().item()]
"""
    assert tasks.value(body) == [1, 300.0**3]
    assert tasks.value(body, threads=2) == [2, 300.0**3]


def test_loader_with_workers_loads_what_one_without_does(tasks):
    body = """
from torch.utils.data import DataLoader, TensorDataset
def run(k):
    data = TensorDataset(torch.arange(10))
    found = []
    for workers in (0, 2):
        torch.manual_seed(0)
        loader = DataLoader(data, 3, True, num_workers=workers, pin_memory=workers > 0)
        found.append([batch[0].tolist() for batch in loader])
    return found
"""
    without, with_workers = tasks.value(body)
    assert without == with_workers


# What the checks must not break -----------------------------------------------------


SCHEDULERS = """
from torch.optim import lr_scheduler as ls
class Decay:
    def __init__(self, rate):
        self.rate = rate
    def __call__(self, epoch):
        return self.rate**epoch
def make(sgd):
    parts = [ls.StepLR(sgd, 1), ls.ConstantLR(sgd)]
    return [
        *(ls.StepLR(sgd, 1), ls.LambdaLR(sgd, Decay(0.5)), ls.ReduceLROnPlateau(sgd)),
        *(ls.MultiplicativeLR(sgd, lambda epoch: 0.9), ls.CyclicLR(sgd, 0.1, 1.0)),
        *(ls.OneCycleLR(sgd, 1.0, 10), ls.CosineAnnealingLR(sgd, 5)),
        *(ls.SequentialLR(sgd, parts, [2]), ls.ChainedScheduler(parts)),
    ]
def start():
    return torch.optim.SGD([nn.Parameter(torch.ones(1))], 1.0, momentum=0.5)
def run(k):
    place = k["place"]
    one, two = start(), start()
    old, new = make(one)[place], make(two)[place]
    for _ in range(3):
        one.step()
        old.step(1.0) if place == 2 else old.step()
    new.load_state_dict(old.state_dict())
    return [new.get_last_lr(), old.get_last_lr()]
"""


@pytest.mark.parametrize("place", range(9))
def test_scheduler_restores_what_it_saved(tasks, place):
    restored, saved = tasks.value(SCHEDULERS, place=place)
    assert restored == saved


def test_own_distribution_is_checked_by_its_constraints(tasks):
    body = """
from torch import distributions as D
class Shifted(D.Distribution):
    arg_constraints = {"shift": D.constraints.positive}
    def __init__(self, shift):
        self.shift = shift
        super().__init__(shift.shape, validate_args=True)
def run(k):
    good = Shifted(torch.ones(2)).batch_shape
    try:
        Shifted(-torch.ones(2))
    except ValueError as error:
        return [list(good), "shift" in str(error)]
"""
    assert tasks.value(body) == [[2], True]


def test_own_function_can_be_extended(tasks):
    body = """
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.factor = 2
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g * ctx.factor
class Thrice(Twice):
    pass
def run(k):
    x = torch.ones(2, requires_grad=True)
    Thrice.apply(x).sum().backward()
    return x.grad.tolist()
"""
    assert tasks.value(body) == [2.0, 2.0]


def test_answers_of_a_machine_without_a_card(tasks):
    body = """
def run(k):
    torch.backends.cudnn.deterministic = True
    torch.cuda.manual_seed_all(1)
    card = torch.cuda.is_available() or torch.backends.mps.is_available()
    return [card, torch.cuda.device_count(), torch.backends.cudnn.deterministic]
"""
    assert tasks.value(body) == [False, 0, True]

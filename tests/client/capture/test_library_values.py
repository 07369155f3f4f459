"""What of torch becomes an argument, and what is refused by name."""

import warnings
from collections import OrderedDict

import pytest
import torch
from torch import nn

from stoilo.client.capture import capture_task
from stoilo.core.codec import nodes, skeleton
from stoilo.core.codec.nodes import Instance
from stoilo.core.errors import UsageError
from stoilo.policies.levels import find_argument_types


class Small(nn.Module):
    """A module of the researcher's own."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.second = nn.Linear(2, 2)
        self.second.weight = self.first.weight
        self.steps = 0


def use(kwargs):
    return list(kwargs)


def node_of(value):
    captured = capture_task(use, {"x": value})
    return skeleton.decode(captured.arguments)["x"], captured


@pytest.fixture(scope="module", autouse=True)
def caches_of_torch(tmp_path_factory):
    """The optimisers of this process bring a compiler, which makes a folder for itself."""
    with pytest.MonkeyPatch.context() as patch:
        folder = str(tmp_path_factory.mktemp("inductor"))
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", folder)
        yield


def test_own_module_is_named_by_the_source_and_holds_its_state():
    node, captured = node_of(Small())
    assert "class Small(nn.Module)" in captured.task_module
    assert node.class_name == "Small"
    assert node.state == {"steps": 0}
    assert list(node.base.state["modules"]) == ["first", "second"]


def test_library_module_is_named_as_a_level_hands_it_out():
    node, captured = node_of(nn.LSTM(1, 1))
    assert node.class_name == "torch.nn.LSTM"
    assert "torch" not in captured.task_module
    assert not any(name.startswith("_flat_weight_") for name in node.state)


def test_weight_in_two_places_is_sent_once():
    node, _ = node_of(Small())
    modules = node.base.state["modules"]
    first = modules["first"].base.state["parameters"]["weight"]
    second = modules["second"].base.state["parameters"]["weight"]
    assert second == Instance(nodes.SHARED, {}, first.base)


def test_same_model_gives_the_same_bytes():
    torch.manual_seed(0)
    one = Small()
    assert node_of(one)[1] == node_of(one)[1]


def test_argument_types_choose_the_level():
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
    node, _ = node_of([optimizer, torch.float32, OrderedDict(a=1)])
    assert find_argument_types(node) == (
        *("torch.Tensor", "torch.dtype", "torch.nn.Parameter"),
        "torch.optim.Optimizer",
    )


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (torch.bfloat16, nodes.DTYPE),
        (torch.device("cpu"), nodes.DEVICE),
        (torch.Size([1, 2]), nodes.SIZE),
        (OrderedDict(b=1, a=2), nodes.ORDERED),
        (nn.Parameter(torch.ones(1)), nodes.PARAMETER),
        (torch.ones(1, requires_grad=True), nodes.TENSOR),
        (torch.ones(1, requires_grad=True) * 2, nodes.TENSOR),
    ],
)
def test_small_library_value_has_its_form(value, form):
    assert node_of(value)[0].class_name == form


def hooked():
    module = nn.Linear(1, 1)
    module.register_forward_hook(lambda *_: None)
    return module


def hooked_weight():
    module = nn.Linear(1, 1)
    module.weight.register_hook(lambda grad: grad)
    return module


def hooked_tensor():
    tensor = torch.ones(1, requires_grad=True)
    tensor.register_hook(lambda grad: grad)
    return nn.ParameterList([nn.Linear(1, 1).weight]), tensor


def lazy():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.LazyLinear(1)


def scheduler():
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
    return torch.optim.lr_scheduler.StepLR(optimizer, 1)


REFUSED = {
    "hooks": (hooked, "hooks"),
    "hooks of a weight": (hooked_weight, "hooks"),
    "hooks of a tensor": (hooked_tensor, "hooks"),
    "not run yet": (lazy, "kwargs['x']"),
    "other device": (lambda: torch.device("meta"), "device meta"),
    "empty tensor": (lambda: torch.ones(1, device="meta"), "dense"),
    "sparse": (lambda: torch.eye(2).to_sparse(), "dense"),
    "schedule": (scheduler, "StepLR"),
    "class that no level has": (lambda: nn.DataParallel(nn.ReLU()), "DataParallel"),
    "parametrized": (
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(1, 1)),
        "hooks",
    ),
    "generator": (torch.Generator, "Generator"),
    "loader": (lambda: torch.utils.data.DataLoader([1]), "DataLoader"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_travel_is_refused_by_name(name):
    make, said = REFUSED[name]
    with pytest.raises(UsageError) as error:
        node_of(make())
    assert "kwargs['x']" in error.value.message or name == "hooks of a tensor"
    assert said in error.value.message
    assert error.value.hint

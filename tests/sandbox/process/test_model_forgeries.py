"""Nodes that claim to be modules or optimisers: what they build is sound, or refused."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from stoilo.core.codec import nodes, skeleton
from stoilo.core.codec.nodes import FunctionRef, Instance, Tensor
from stoilo.core.errors import StoiloError
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.channel import TASK_JOB, TaskRequest
from stoilo.sandbox.process.run import run_task
from stoilo.sandbox.process.supervisor import Jail

SOURCE = """
import torch
from torch import nn

calls = []

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        calls.append("init")
    @property
    def watched(self):
        calls.append("getter")
        return 1
    @watched.setter
    def watched(self, value):
        calls.append("setter")
    def load_state_dict(self, *values):
        calls.append("load")

class Plain:
    pass

class Descent(torch.optim.Optimizer):
    def __init__(self, params):
        calls.append("init")

def run(kwargs):
    x = kwargs["x"]
    return ACTION
"""
pytestmark = pytest.mark.usefixtures("caches_of_torch")


def execute(jail, source, entry, arguments, blobs=()):
    request = TaskRequest(source, entry, arguments, blobs, now=1)
    return run_task(jail, request, load_level("tensor").default_limits())


def bind(jail, node, action="1"):
    source = SOURCE.replace("ACTION", action)
    return execute(jail, source, "run", skeleton.encode({"x": node}))


def value(jail, node, action):
    outcome = bind(jail, node, action)
    assert outcome.status.value == "ok", outcome
    return skeleton.decode(outcome.value)


# Forged objects


WEIGHT = Tensor("float32", (1,), b"\0\0\x80?")
EMPTY = {"training": True, "parameters": {}, "buffers": {}, "modules": {}}
EMPTY |= {"temporary": []}
GROUPS = {"defaults": {"lr": 0.1}, "groups": [], "state": []}


def parameter(label=1, **changes):
    state = {"data": WEIGHT, "requires_grad": True} | changes
    return Instance(nodes.PARAMETER, state, label)


def module(name="Net", state=None, label=0, **fields):
    base = Instance(nodes.MODULE, EMPTY | fields, label)
    return Instance(name, state or {}, base)


def optimizer(name="Descent", state=None, **fields):
    given = {"groups": [{"params": [parameter()], "lr": 0.1}]} | fields
    return Instance(name, state or {}, Instance(nodes.OPTIMIZER, GROUPS | given, 0))


def shared(label):
    return Instance(nodes.SHARED, {}, label)


GENUINE = {
    "module": (module(parameters={"w": parameter()}), "list(x.state_dict())", ["w"]),
    "none of its code": (module(state={"watched": 1, "_own": 2}), "calls", []),
    "private": (module(state={"_own": 2}), "x._own", 2),
    "library": (module("torch.nn.Identity"), "type(x) is nn.Identity", True),
    "optimizer": (optimizer(), "x.param_groups[0]['lr'], calls", (0.1, [])),
    "shared": ([parameter(), shared(1)], "x[0] is x[1]", True),
    "dtype": (Instance(nodes.DTYPE, {}, "float64"), "x is torch.float64", True),
}


@pytest.mark.parametrize("name", GENUINE)
def test_well_formed_node_becomes_its_object(tensor_jail, name):
    node, action, expected = GENUINE[name]
    assert value(tensor_jail, node, action) == expected


LSTM = {
    "input_size": 1, "hidden_size": 1, "num_layers": 1, "bias": False,
    "_flat_weights_names": [], "_all_weights": [],
}  # fmt: skip
FORGED = {
    "registry": module(state={"_parameters": {}}),
    "hooks": module(state={"_forward_hooks": {0: 1}}),
    "dunder": module(state={"__class__": 1}),
    "method dunder": module(state={"__call__": 1}),
    "inspected": module(state={"gi_frame": 1}),
    "method of a library": module("torch.nn.Linear", {"register_buffer": 1}),
    "parameter over a method": module(
        "torch.nn.Identity", parameters={"to": parameter()}
    ),
    "library state": module("torch.nn.Linear", {"_secret": 1}),
    "method names as weights": module(
        "torch.nn.LSTM", LSTM | {"_all_weights": [["__init__"]]}
    ),
    "weights of another": module(
        "torch.nn.LSTM", LSTM | {"_flat_weights_names": ["w"]}
    ),
    "keys as attributes": module(
        "torch.nn.ParameterDict", {"_keys": {"__dict__": None}}
    ),
    "size of text": module("torch.nn.ParameterList", {"_size": "1"}),
    "padding of text": module(
        "torch.nn.Conv1d", {"_reversed_padding_repeated_twice": ["x"]}
    ),
    "dunder parameter": module(parameters={"__array_interface__": parameter()}),
    "dotted parameter": module(parameters={"a.b": parameter()}),
    "registry as parameter": module(parameters={"_buffers": parameter()}),
    "tensor as parameter": module(parameters={"w": WEIGHT}),
    "text as buffer": module(buffers={"w": "x"}),
    "function as module": module(modules={"w": FunctionRef("run")}),
    "unknown temporary": module(temporary=["w"]),
    "training of text": module(training="x"),
    "missing table": Instance("Net", {}, Instance(nodes.MODULE, {}, 0)),
    "class not handed out": module("torch.nn.DataParallel"),
    "script": module("torch.jit.ScriptModule"),
    "function": module("torch.nn.functional.relu"),
    "class of the source": module("Plain"),
    "no class": module("torch.nn"),
    "form by itself": Instance(nodes.MODULE, EMPTY, 0),
    "label twice": [parameter(), parameter()],
    "label of nothing": shared(1),
    "label of text": parameter("x"),
    "label of a flag": parameter(label=True),
    "integers with gradients": parameter(data=Tensor("int64", (1,), bytes(8))),
    "parameter of text": parameter(data="x"),
    "more than a parameter": parameter(grad=1),
    "dtype": Instance(nodes.DTYPE, {}, "load"),
    "device": Instance(nodes.DEVICE, {}, "cuda"),
    "shape": Instance(nodes.SIZE, {}, ("x",)),
    "ordered": Instance(nodes.ORDERED, {}, [1]),
    "optimizer of text": optimizer(groups=[{"params": "x"}]),
    "group": optimizer(groups=["x"]),
    "parameters of text": optimizer(groups=[{"params": ["x"]}]),
    "defaults of text": optimizer(defaults="x"),
    "no optimizer": optimizer("Net"),
    "optimizer's hooks": optimizer(state={"_optimizer_step_pre_hooks": {}}),
    "unfit options": optimizer("torch.optim.Adam", defaults={"lr": "x"}),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_node_is_refused(tensor_jail, name):
    outcome = bind(tensor_jail, FORGED[name])
    assert outcome.status.value == "refused"
    assert outcome.code == "STO-G110", outcome


def test_narrower_level_has_no_modules():
    with Jail(load_level("pure"), TASK_JOB) as jail:
        source = "def run(kwargs):\n    return 1\n"
        for node in (module("torch.nn.Identity"), Instance(nodes.DTYPE, {}, "bool")):
            outcome = execute(jail, source, "run", skeleton.encode({"x": node}))
            assert (outcome.status.value, outcome.code) == ("refused", "STO-G110")
        outcome = execute(jail, source, "run", skeleton.encode({"x": WEIGHT}))
        assert (outcome.status.value, outcome.code) == ("refused", "STO-D011")


# Any node at all

USUAL_NAMES = ("w", "_w", "0", "a.b", "weight", "forward", "training")
ODD_NAMES = ("__class__", "__dict__", "__init__", "__array__", "gi_frame")
LIBRARY_NAMES = ("_parameters", "_forward_hooks", "_all_weights", "_keys", "_size")
NAMES = st.sampled_from(USUAL_NAMES + ODD_NAMES + LIBRARY_NAMES)
OWN_CLASSES = ("Net", "Plain", "torch.jit.load", "x.y")
LIBRARY_CLASSES = ("torch.nn.Linear", "torch.nn.LSTM", "torch.optim.SGD")
CLASSES = st.sampled_from((*OWN_CLASSES, *LIBRARY_CLASSES, *sorted(nodes.FORMS)))
LEAVES = st.sampled_from(
    [
        None,
        True,
        0,
        1,
        -1,
        2.5,
        "x",
        "cpu",
        "float32",
        b"",
        (1, 2),
        [],
        ["w"],
        {},
        WEIGHT,
    ]
)


def instances(inner):
    tables = st.dictionaries(NAMES, inner, max_size=2)
    fields = {"training": st.booleans(), "temporary": st.just([])}
    fields |= dict.fromkeys(("parameters", "buffers", "modules"), tables)
    module_base = st.builds(
        Instance,
        st.just(nodes.MODULE),
        st.fixed_dictionaries(fields),
        st.integers(0, 9),
    )
    optimizer_fields = {
        "defaults": tables,
        "groups": st.lists(st.fixed_dictionaries({"params": inner}), max_size=2),
        "state": st.lists(st.tuples(inner, tables), max_size=1),
    }
    optimizer_base = st.builds(
        Instance,
        st.just(nodes.OPTIMIZER),
        st.fixed_dictionaries(optimizer_fields),
        st.integers(0, 9),
    )
    parameters = st.builds(
        lambda data, grad, label: parameter(label, data=data, requires_grad=grad),
        st.one_of(st.just(WEIGHT), inner),
        st.booleans(),
        st.integers(0, 9),
    )
    bases = st.one_of(module_base, optimizer_base, inner)
    likely = st.dictionaries(st.sampled_from(["w", "v", "_w", "__class__"]), parameters)
    modules = st.builds(
        lambda name, label, entries: module(name, label=label, parameters=entries),
        st.sampled_from(["Net", "torch.nn.Identity", "torch.nn.ParameterList"]),
        st.integers(0, 99),
        likely,
    )
    return st.one_of(
        parameters,
        modules,
        st.builds(Instance, CLASSES, tables, bases),
        st.lists(inner, max_size=2),
    )


@given(st.recursive(LEAVES, instances, max_leaves=12))
def test_any_node_ends_in_sound_objects_or_a_refusal(binding, node):
    try:
        made = binding(node)
    except StoiloError:
        return
    assert_sound(made)


def assert_sound(value):
    """Every module reached holds what its registries are for, under usable names."""
    if isinstance(value, list | tuple):
        for item in value:
            assert_sound(item)
    if not isinstance(value, nn.Module):
        return
    kinds = {
        "_parameters": nn.Parameter,
        "_buffers": torch.Tensor,
        "_modules": nn.Module,
    }
    attributes = vars(value)
    assert set(vars(nn.Module())) <= set(attributes)
    for registry, kind in kinds.items():
        for name, entry in attributes[registry].items():
            assert entry is None or isinstance(entry, kind)
            assert name
            assert "." not in name
            assert not name.startswith("__")
    hooks = [name for name in attributes if name.endswith("_hooks")]
    assert not any(attributes[name] for name in hooks)
    for child in attributes["_modules"].values():
        assert_sound(child)

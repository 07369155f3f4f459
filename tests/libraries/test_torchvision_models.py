"""Models of libraries as arguments: they arrive as they were, forgeries are refused."""

import copy
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from stoilo.client.capture import capture_task
from stoilo.core.codec import nodes, skeleton
from stoilo.core.codec.nodes import ClassRef, FunctionRef, Instance, from_node
from stoilo.core.errors import UsageError
from stoilo.learn import TorchModel
from stoilo.learn.kernels import torch_models
from stoilo.policies.gate import GateRequest, judge
from stoilo.policies.levels import find_argument_types
from stoilo.sandbox.libraries.torchvision_import import import_torchvision
from stoilo.sandbox.process.channel import TaskRequest
from stoilo.sandbox.process.run import run_task
from tests.support.libraries import library_jail, library_level

torchvision = import_torchvision()
models = torchvision.models
SMALL = torch.linspace(-1, 1, 3 * 32 * 32).reshape(1, 3, 32, 32)
WORDS = torch.linspace(-1, 1, 4 * 16).reshape(1, 4, 16)


def use(kwargs):
    """Return what the model makes of the inputs, and its state."""
    model = kwargs["model"].eval()
    return model(*kwargs["inputs"]).detach(), dict(model.state_dict())


def execute(source, entry, arguments, blobs=()):
    request = TaskRequest(source, entry, arguments, tuple(blobs), now=1)
    jail, level = library_jail("torchvision"), library_level("torchvision")
    return run_task(jail, request, level.default_limits())


def types_in(captured):
    data = (captured.arguments, *captured.blobs)
    return {name for one in data for name in find_argument_types(skeleton.decode(one))}


MODELS = {
    "resnet18": lambda: (models.resnet18(num_classes=3), SMALL),
    "resnet of another norm": lambda: (
        models.ResNet(
            models.resnet.BasicBlock,
            [1, 1, 1, 1],
            norm_layer=partial(nn.BatchNorm2d, eps=0.1),
        ),
        SMALL,
    ),
    "mobilenet": lambda: (models.mobilenet_v3_small(num_classes=3), SMALL),
    "shufflenet": lambda: (models.shufflenet_v2_x0_5(num_classes=3), SMALL),
    "densenet": lambda: (models.DenseNet(4, (2, 2), 8), SMALL),
    "vision transformer": lambda: (
        models.VisionTransformer(32, 8, 1, 2, 16, 32),
        SMALL,
    ),
    "transformer": lambda: (nn.Transformer(16, 2, 1, 1, 32), WORDS, WORDS),
    "encoder": lambda: (
        nn.TransformerEncoder(
            nn.TransformerEncoderLayer(16, 2, 8, activation="gelu"), 2
        ),
        WORDS,
    ),
    "encoder of a lambda": lambda: (
        nn.TransformerEncoderLayer(16, 2, 8, activation=lambda x: x.relu() * 2),
        WORDS,
    ),
    "decoder": lambda: (
        nn.TransformerDecoder(
            nn.TransformerDecoderLayer(16, 2, 8, activation=nn.GELU()), 1
        ),
        WORDS,
        WORDS,
    ),
}


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("name", MODELS)
def test_model_of_a_library_arrives_as_it_was(name):
    torch.manual_seed(0)
    assert_arrives(*MODELS[name]())


# Not of VGG, AlexNet and kin: their weights take more than a result may
FAMILIES = (
    *("convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s"),
    *("googlenet", "inception_v3", "mnasnet0_5", "mobilenet_v2", "regnet_x_400mf"),
    *("regnet_y_400mf", "resnet50", "resnext50_32x4d", "squeezenet1_0", "swin_t"),
    *("swin_v2_t",),
)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*init_weights|The default weight init")
@pytest.mark.parametrize("name", FAMILIES)
def test_model_of_every_family_arrives_as_it_was(name):
    torch.manual_seed(0)
    with torch.no_grad():
        assert_arrives(getattr(models, name)(), torch.randn(1, 3, 80, 80))


def assert_arrives(model, *inputs):
    kwargs = {"model": model, "inputs": inputs}
    task = capture_task(use, kwargs)
    outcome = execute(task.task_module, task.entry, task.arguments, task.blobs)
    assert outcome.status.value == "ok", outcome
    answer, state = from_node(skeleton.decode(outcome.value))
    expected, before = use(kwargs)
    assert all(torch.equal(state[key], before[key]) for key in before)
    apart = (answer - expected).abs().max()
    assert apart <= 1e-4 + 1e-3 * expected.abs().max()


def test_model_as_an_argument_chooses_level_and_library():
    task = capture_task(use, {"model": models.resnet18(), "inputs": ()})
    assert "torchvision" not in task.task_module
    types = tuple(sorted(types_in(task)))
    verdict = judge(GateRequest(task.task_module.encode(), argument_types=types))
    assert (verdict.admitted, verdict.level) == (True, "tensor")
    assert verdict.libraries == ("torchvision",)


def builds_inside(call):
    return len(list(models.resnet18(num_classes=call["classes"]).parameters()))


def test_model_built_inside_is_imported_and_its_source_stays_here():
    task = capture_task(builds_inside, {"classes": 3})
    assert task.task_module.startswith("import torchvision.models as models\n")
    assert "class " not in task.task_module
    outcome = execute(task.task_module, task.entry, task.arguments)
    assert skeleton.decode(outcome.value) == 62


def reads_a_file(call):
    return torchvision.io.read_file(call["path"])


def test_withheld_part_of_a_library_names_the_users_own_function():
    line = reads_a_file.__code__.co_firstlineno + 1  # where the name stands
    with pytest.raises(UsageError, match="STO-C012") as error:
        capture_task(reads_a_file, {"path": "x"})
    assert f"test_torchvision_models.py:{line}) needs module" in error.value.message


def hooked():
    model = models.squeezenet1_1()
    model.classifier.register_forward_hook(lambda *_: None)
    return model


def undescribed():
    return nn.Sequential(models.segmentation.fcn.FCNHead(8, 2))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            hooked,
            "kwargs['model'].classifier cannot travel: hooks are registered on it",
        ),
        (undescribed, "no level knows torchvision.models.segmentation.fcn.FCNHead"),
        (lambda: nn.DataParallel(models.squeezenet1_1()), "DataParallel"),
    ],
)
def test_what_does_not_travel_is_refused_by_name_with_advice(make, said):
    with pytest.raises(UsageError, match="STO-C010") as error:
        capture_task(use, {"model": make(), "inputs": ()})
    assert said in error.value.message
    assert "inside the function" in error.value.hint


def test_gradient_task_of_the_trainer_computes_in_the_jail_as_here():
    torch.manual_seed(0)
    form = TorchModel(models.resnet18(num_classes=3), nn.CrossEntropyLoss())
    first, images = form.first(), torch.randn(12, 3, 64, 64).numpy()
    given = {
        **form.constants(),
        "parameters": dict(first.parameters),
        "buffers": dict(first.buffers),
        "data": {"x": images, "y": np.arange(12) % 3},
        "rows": None,
        "settings": {"seed": 1},
        "version": 0,
    }
    task = capture_task(torch_models.gradient, given)
    outcome = execute(task.task_module, task.entry, task.arguments, task.blobs)
    there = from_node(skeleton.decode(outcome.value))["tensors"]
    here = torch_models.gradient(copy.deepcopy(given))["tensors"]
    assert set(there) == set(here)
    assert here["fc.weight"] == pytest.approx(there["fc.weight"], abs=1e-3)


@pytest.mark.parametrize("kind", [nn.BatchNorm2d, models.resnet.BasicBlock])
def test_class_of_a_library_as_an_argument_is_that_class(kind):
    task = capture_task(lambda kwargs: kwargs["kind"].__name__, {"kind": kind})
    outcome = execute(task.task_module, task.entry, task.arguments)
    assert skeleton.decode(outcome.value) == kind.__name__


# Forgeries


def forged(name, **state):
    fields = {"training": True, "parameters": {}, "buffers": {}, "modules": {}}
    return Instance(name, state, Instance(nodes.MODULE, fields | {"temporary": []}, 0))


RESNET = "torchvision.models.ResNet"
FORGERIES = {
    "function in place of a class": forged("torchvision.models.resnet18"),
    "class that is no module": forged("torchvision.transforms.Compose"),
    "class that only the library has": forged("torchvision.models._api.Weights"),
    "module that is not handed out": forged("torchvision.models.detection.FasterRCNN"),
    "module under another library's name": forged("torchvision.transforms.v2.torch"),
    "data in place of a norm": forged(RESNET, _norm_layer=5),
    "text in place of a flag": forged(
        "torchvision.models.mobilenetv2.InvertedResidual", _is_cn="yes"
    ),
    "text in place of integers": forged(
        "torchvision.models.ShuffleNetV2", _stage_out_channels=["a"]
    ),
    "method replaced": forged(RESNET, forward=FunctionRef("run")),
    "private method replaced": forged(RESNET, _forward_impl=FunctionRef("run")),
    "private state of another class": forged(RESNET, _is_cn=True),
    "hooks by state": forged(RESNET, _forward_hooks={1: FunctionRef("run")}),
    "registries by state": forged(RESNET, _modules={}),
    "class by a special name": forged(RESNET, __class__=ClassRef("run")),
    "library's class that is not handed out": ClassRef("torchvision.models.Weights"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_model_is_refused(name):
    source = "import torchvision\n\ndef run(kwargs):\n    return 1\n"
    outcome = execute(source, "run", skeleton.encode({"x": FORGERIES[name]}))
    assert (outcome.status.value, outcome.code) == ("refused", "STO-G110")


def test_honest_empty_model_of_the_same_form_is_made():
    source = "def run(kwargs):\n    return type(kwargs['x']).__name__\n"
    node = forged(RESNET, _norm_layer=FunctionRef("run"))
    outcome = execute(source, "run", skeleton.encode({"x": node}))
    assert skeleton.decode(outcome.value) == "ResNet"


# The import


def test_torchvision_is_imported_without_its_native_operators():
    program = """
from stoilo.ml import import_torchvision
import torch
tv = import_torchvision()
import torchvision
assert tv is torchvision is import_torchvision()
boxes = torch.tensor([[0.0, 0, 4, 4], [0, 0, 4, 5], [9, 9, 12, 12]])
print(torchvision.ops.nms(boxes, torch.tensor([0.1, 0.9, 0.5]), 0.5).tolist())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[1, 2]"

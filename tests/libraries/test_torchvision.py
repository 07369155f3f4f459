"""torchvision in the jail: research programs give plain answers, attacks are stopped."""

import functools
from pathlib import Path

import pytest

from stoilo.core.codec import skeleton
from stoilo.core.types import RunStatus
from tests.support.libraries import (
    check_program,
    programs_of,
    run_jailed,
    run_plainly,
)

_PLAIN = ("stoilo.sandbox.libraries.torchvision",)  # torch as tasks have it, no façades


@pytest.mark.parametrize(("path", "name"), programs_of("torchvision"))
def test_program_gives_the_plain_answer(path: Path, name: str) -> None:
    check_program(path, name, _PLAIN)


_PICTURE = """
import operator
import torch
from torchvision import transforms

def run(args):
    picture = transforms.ToPILImage()(torch.rand(3, 4, 4))
    return bool({})
"""
PICTURES = {
    "its pixels in C": "picture.im",
    "its pixels by getattr": "getattr(picture, 'im')",
    "its pixels by attrgetter": "operator.attrgetter('im')(picture)",
    "its pixels by a template": "'{0.im}'.format(picture)",
    "its pixels by format_map": "'{p.im}'.format_map({'p': picture})",
    "its pixels off the class": "type(picture).im",
    "a method that saves": "picture.save",
    "a method that saves, by map": "[*map(operator.attrgetter('save'), [picture])]",
    "a method that shows": "picture.show",
    "encoders by name": "picture.tobytes('raw')",
    "text of another kind": "picture.tobitmap",
    "its palette, which saves": "picture.convert('P').palette",
    "a protocol": "picture.__array_interface__",
    "its loader": "picture.load()",
    "a pattern": "[1 for p in [picture] if hasattr(p, 'getim')]",
}


_ATTACK = """
import torch
{}

def run(args):
    {}
"""
_THROUGH = """
import operator
import torch
from torchvision import datasets, transforms

def run(args):
    peek = operator.attrgetter("{}")
    picture = transforms.ToPILImage()(torch.rand(3, 4, 4))
    return bool({})
"""
THROUGH = {
    "a transform": "transforms.Lambda(peek)(picture)",
    "several transforms": "transforms.Compose([peek, id])(picture)",
    "one of several": "transforms.RandomChoice([peek])(picture)",
    "a data set": "datasets.FakeData(1, (3, 4, 4), transform=peek)[0][0]",
    "a loader": "[*torch.utils.data.DataLoader([picture], 1, collate_fn=lambda x: peek(x[0]))]",
}
_MINE = """class Mine({}):
    def {}(self, *values, **more):
        return 7"""
ATTACKS = {
    "reads a file": (
        "from torchvision.datasets.utils import check_integrity",
        "return check_integrity('/etc/passwd')",
    ),
    "writes a file": (
        "from torchvision.utils import save_image",
        "save_image(torch.rand(3, 4, 4), '/dev/null', 'png'); return True",
    ),
    "names a download": (
        "from torchvision.models import ResNet18_Weights",
        "return ResNet18_Weights.DEFAULT.url",
    ),
    "finds weights by text": (
        "from torchvision import models",
        "return models.get_weight('ResNet18_Weights.DEFAULT').url",
    ),
    "reads a module's imports": (
        "from torchvision.transforms import functional",
        "return functional.np is not None",
    ),
    "reads a library's PIL": (
        "import torchvision.transforms.functional as functional",
        "return functional.Image.open is not None",
    ),
    "opens a data set": (
        "from torchvision.datasets import CIFAR10",
        "return CIFAR10.url",
    ),
    "traces a model": (
        "from torchvision.models.feature_extraction import create_feature_extractor",
        "return create_feature_extractor is not None",
    ),
    "registers a kernel": (
        "from torchvision.transforms.v2.functional import register_kernel",
        "return register_kernel is not None",
    ),
    "makes a bare tensor": (
        "from torchvision import tv_tensors",
        "return tv_tensors.Image(torch.rand(3, 4, 4)).untyped_storage().data_ptr()",
    ),
    "dispatches through a private table": (
        "from torchvision.transforms.v2.functional._utils import _KERNEL_REGISTRY",
        "return len(_KERNEL_REGISTRY)",
    ),
    "replaces a function for the library": (
        "from torchvision.transforms import functional",
        "functional.resize = len; return functional.resize is len",
    ),
    "changes the registry of models": (
        "from torchvision.models._api import BUILTIN_MODELS",
        "return BUILTIN_MODELS.setdefault('mine', print) is print",
    ),
    "overrides what a model relies on": (
        "from torchvision.models.resnet import BasicBlock, ResNet\n"
        + _MINE.format("ResNet", "_forward_impl"),
        "return Mine(BasicBlock, [1, 1, 1, 1])(torch.zeros(1, 3, 8, 8)) == 7",
    ),
    "overrides what a transform relies on": (
        "from torchvision.transforms import v2\n"
        + _MINE.format("v2.Resize", "_call_kernel"),
        "return Mine(4)(torch.zeros(1, 8, 8)) == 7",
    ),
    "calls a method on another kind": (
        "from torchvision import models",
        "return models.VGG.forward.__get__(1) is not None",
    ),
    "reads through a loader": (
        "from torchvision.datasets import DatasetFolder",
        "return DatasetFolder is not None",
    ),
}


SOURCES = {
    **{f"image: {name}": _PICTURE.format(text) for name, text in PICTURES.items()},
    **{
        f"image's {name} through {road}": _THROUGH.format(name, text)
        for road, text in THROUGH.items()
        for name in ("im", "save", "transform", "load", "tobytes", "filter")
    },
    **{name: _ATTACK.format(*texts) for name, texts in ATTACKS.items()},
}


@functools.cache
def _plain_answers() -> dict[str, tuple[bytes, str]]:
    """Return what every attack gives in plain CPython: one process for all of them."""
    found = run_plainly([(one, "run", {}) for one in SOURCES.values()], _PLAIN)
    return dict(zip(SOURCES, found, strict=True))


@pytest.mark.parametrize("name", SOURCES)
def test_attack_works_plainly_and_not_in_the_jail(name: str) -> None:
    value, error = _plain_answers()[name]
    assert not error, error
    assert skeleton.decode(value), "the attack does not work in plain CPython either"
    outcome = run_jailed(SOURCES[name], "run", {}, ["torchvision"])
    if outcome.status is RunStatus.OK:
        assert not skeleton.decode(outcome.value or b"")
    else:  # by a rule, or since there is no such name
        assert outcome.status is RunStatus.REFUSED or "AttributeError" in outcome.error


@pytest.mark.parametrize(
    "call",
    [
        "resnet18(weights='DEFAULT')",
        "resnet18('DEFAULT')",
        "resnet18(True)",
        "resnet18(pretrained=True)",
        "get_model('vgg11', weights='DEFAULT')",
        "resnet.resnet50(weights='DEFAULT')",
    ],
)
def test_weights_that_would_be_downloaded_are_refused_by_name(call: str) -> None:
    source = f"from torchvision import models\ndef run(args):\n    models.{call}\n"
    source = source.replace(
        "import models\n", "import models\nimport torchvision.models.resnet\n"
    )
    outcome = run_jailed(source, "run", {}, ["torchvision"])
    assert (outcome.status, outcome.code) == (RunStatus.REFUSED, "STO-G102")
    assert "downloads no weights" in outcome.error

import ast
import dataclasses

import pytest

from stoilo.core.levels import Level, LevelLimits, ModuleRule, SyscallRules
from stoilo.policies.findings import Lines
from stoilo.policies.gate import GateRequest, judge
from stoilo.policies.imports import (
    find_import_problems,
    find_needs,
)


def make_level(name: str, order: int, modules: dict[str, tuple[str, ...]]) -> Level:
    """Return a level that hands out `modules` and nothing else."""
    return Level(
        name=name,
        order=order,
        summary="",
        preload=(),
        modules={key: ModuleRule(names=names) for key, names in modules.items()},
        builtins=(),
        syscalls=SyscallRules(allow=(), guarded=(), errno={}),
        limits=LevelLimits(default={}, max={}),
    )


NARROW = {"math": ("sin", "pi"), "collections": ("Counter",), "os.path": ("join",)}
WIDE = {
    **NARROW,
    "np": ("array",),
    "np.linalg": ("solve",),
    "np.lib.tricks": ("slide",),
    "collections.abc": ("Set",),
}
LOW, HIGH = make_level("low", 0, NARROW), make_level("high", 1, WIDE)


def problems(text: str, level: Level = LOW) -> list[str]:
    needs = find_needs(ast.parse(text))
    found = find_import_problems(needs, Lines(text), level, (HIGH,))
    return [finding.code for finding in found]


@pytest.mark.parametrize(
    "text",
    [
        "import math",
        "import math as m\nm.sin(m.pi)",
        "from math import sin, pi as p",
        "import os.path",
        "from os.path import join",
        "from __future__ import annotations",
        "import math\nmath.pi.real",
        "import math\ndef f(math): return math.secret",
        "def math(): pass\nimport math\nmath.other",
        "import math\nfor math in (): math.other",
        "x.os.system",
    ],
)
def test_what_the_level_hands_out_passes(text: str) -> None:
    assert problems(text) == []


REFUSED = {
    "import os": "STO-P040",
    "import os as math": "STO-P040",
    "import math.sub": "STO-P040",
    "from os import path": None,  # os.path is open under its full name
    "from os import system": "STO-P040",
    "from math import sin, exec": "STO-P040",
    "from collections import abc": "STO-P040",
    "import math\nmath.cos": "STO-P040",
    "import math as m\ndef f():\n  m._os": "STO-P040",
    "import math\nmath.sin = 1\nmath.other = 2": "STO-P040",
    "from . import x": "STO-P042",
    "from .math import sin": "STO-P042",
    "from math import *": "STO-P042",
    "from __future__ import barry_as_FLUFL": "STO-P042",
    "import __future__": "STO-P042",
    "def f():\n  import socket": "STO-P040",
    "try:\n  import os\nexcept ImportError: pass": "STO-P040",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_the_level_does_not_hand_out_is_refused(text: str) -> None:
    code = REFUSED[text]
    assert problems(text) == ([code] if code else [])


@pytest.mark.parametrize(
    "text",
    [
        "import np\nnp.linalg.solve(np.array)",
        "import np.linalg as la\nla.solve",
        "from np import linalg",
        "import np\nnp.lib.tricks.slide",
        "from collections import abc",
    ],
)
def test_higher_level_admits_more(text: str) -> None:
    assert problems(text, HIGH) == []
    assert problems(text, LOW) != []


def test_hint_names_the_level_that_opens_the_module() -> None:
    (finding,) = find_import_problems(
        find_needs(ast.parse("import np")), Lines("import np"), LOW, (HIGH,)
    )
    assert "level=high" in finding.hint
    assert (finding.column, finding.end_column) == (8, 10)


def hint_of(text: str, libraries: tuple[str, ...] | None = None) -> str:
    """Return the first finding's hint at level numeric."""
    request = GateRequest(f"{text}\ndef f(args): pass".encode(), level="numeric")
    verdict = judge(dataclasses.replace(request, libraries=libraries))
    return verdict.findings[0].hint


def test_undescribed_package_is_told_which_file_would_be_needed() -> None:
    hint = hint_of("import xgboost")
    assert "policies/libraries/xgboost.toml" in hint
    assert "stoilo flavor describe xgboost" in hint


@pytest.mark.parametrize(
    ("package", "advice"),
    [("requests", "no network"), ("matplotlib", "draw them"), ("joblib", "pickles")],
)
def test_package_that_no_task_can_use_is_told_what_to_write(
    package: str, advice: str
) -> None:
    assert advice in hint_of(f"import {package}")


def test_library_that_no_flavor_of_the_project_holds_is_refused() -> None:
    assert "no flavor of this project holds scipy" in hint_of("import scipy", ())


def test_library_that_a_flavor_holds_is_named_in_the_verdict() -> None:
    source = b"from scipy import linalg\ndef f(args): return linalg.det(args)"
    verdict = judge(GateRequest(source, libraries=("scipy",)))
    assert (verdict.admitted, verdict.level) == (True, "numeric")
    assert verdict.libraries == ("scipy",)


def test_a_name_read_off_a_module_of_a_library_is_refused_with_the_reason() -> None:
    text = b"from sklearn import datasets\ndef f(call):\n    return datasets.fetch_openml(1)"
    [finding] = judge(GateRequest(text)).findings
    assert (finding.line, finding.hint) == (
        3,
        "sklearn.datasets.fetch_openml is withheld: downloads",
    )


def test_argument_type_alone_needs_its_library() -> None:
    request = GateRequest(b"def f(args): return args", argument_types=("scipy.x.Y",))
    verdict = judge(request)
    assert verdict.libraries == ("scipy",)
    assert [found.code for found in verdict.findings] == ["STO-P053"]

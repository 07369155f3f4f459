"""Each danger is found where it is planted, and only there."""

import functools
import sys
import types

import pytest

from stoilo.flavors.describing.dangers import Reach, kind_of, scan_dangers
from stoilo.flavors.describing.source_scan import handed_functions

HEAD = """
import os, pickle, ctypes, subprocess, socket, sys, operator, gzip
from pathlib import Path
from pickle import loads
import numpy as np
FIXED = "name"
TABLE = {".gz": gzip.open}
"""
PLANTED = {
    "open(x)": "files",
    "os.remove(x)": "files",
    "np.load(x)": "files",
    "x.tofile('a')": "files",
    "Path(x)": "files",
    "TABLE[x](1)": "files",
    "list(map(open, x))": "files",
    "socket.socket()": "sockets",
    "subprocess.run(x)": "processes",
    "os.system(x)": "processes",
    "pickle.loads(x)": "unpickling",
    "loads(x)": "unpickling",
    "exec(x)": "compiling",
    "compile(x, 'a', 'exec')": "compiling",
    "ctypes.string_at(x)": "native pointers",
    "x.ctypes": "native pointers",
    "eval(x)": "evaluates strings",
    "x.format(1)": "evaluates strings",
    "getattr(self, x)": "attribute names as arguments",
    "getattr(x, self.name)": "attribute names as arguments",
    "[getattr(self, name) for name in x]": "attribute names as arguments",
    "operator.attrgetter(x)": "attribute names as arguments",
    "sys.modules[x]": "module objects",
    "__import__(x)": "module objects",
}
HARMLESS = [
    *(
        "os.path.join(x, x)",
        "'{}'.format(x)",
        "getattr(x, 'name')",
        "getattr(x, FIXED)",
    ),
    *(
        "[getattr(x, name) for name in ('a', 'b')]",
        "self.open(x)",
        "x.load()",
        "np.ones(x)",
    ),
]


@pytest.fixture
def scan(tmp_path):
    """Scan a module's function ``start``, with all that it leads to."""

    def scan_source(source, known=("numpy",)):
        path = tmp_path / "planted.py"
        path.write_text(HEAD + source)
        module = types.ModuleType("planted")
        exec(compile(path.read_text(), str(path), "exec"), vars(module))  # noqa: S102 - ours
        facade = types.ModuleType("facade")
        facade.start = module.start
        sys.modules["planted"] = module
        found = Reach(known, []).from_functions(handed_functions([facade], []))
        del sys.modules["planted"]
        return scan_dangers(found)

    return scan_source


@pytest.mark.parametrize(("code", "kind"), PLANTED.items())
def test_planted_danger_is_found(scan, code, kind):
    (danger,) = scan(f"def start(self, x):\n    return lambda: {code}\n")
    assert {kind_of(pattern) for pattern in danger.patterns} == {kind}
    assert danger.places == ("planted.py:9",)


@pytest.mark.parametrize("code", HARMLESS)
def test_harmless_code_is_not_found(scan, code):
    assert scan(f"def start(self, x):\n    return {code}\n") == []


def test_import_inside_a_function_is_a_danger(scan):
    (danger,) = scan("def start(x):\n    import shutil as s\n    s.rmtree(x)\n")
    assert danger.patterns == ("files: shutil.rmtree",)


def test_own_name_hides_a_builtin_one(scan):
    assert scan("def start(open):\n    return open(1)\n") == []


INNER = "def inner(x):\n    return eval(x)\n"
ROADS = {
    "a helper": "def start(x): return inner(x)\n",
    "a table": "ROADS = {1: inner}\ndef start(x): return ROADS[1](x)\n",
    "a local import": "def start(x):\n    from planted import inner as i\n    i(x)\n",
    "a class": "class C:\n    def run(self, x): inner(x)\ndef start(x): C().run(x)\n",
    "a base": "class B:\n    def run(self, x): inner(x)\nclass C(B): pass\n"
    "def start(x): C().run(x)\n",
    "an instance": "class C:\n    def run(self, x): inner(x)\nONE = C()\n"
    "def start(x): ONE.run(x)\n",
    "an attribute": "class C: pass\nONE = C()\nONE.run = inner\n"
    "def start(x): ONE.run(x)\n",
    "a closure": "def make(f):\n    def start(x): return f(x)\n    return start\n"
    "start = make(inner)\n",
}


@pytest.mark.parametrize("road", ROADS.values(), ids=ROADS)
def test_danger_is_found_behind(scan, road):
    source = f"__name__ = 'planted'\n{INNER}{road}"
    assert [danger.name for danger in scan(source)] == ["planted.inner"]


def test_known_packages_are_not_followed(scan):
    source = f"__name__ = 'numpy'\n{INNER}def start(x): return inner(x)\n"
    assert scan(source) == []
    assert len(scan(source, known=())) == 1


def test_function_wrapped_by_the_same_code_is_followed_too(scan):
    source = "import functools\ndef deco(f):\n    @functools.wraps(f)\n"
    source += "    def run(*a): return f(*a)\n    return run\n"
    source += (
        f"__name__ = 'planted'\n{INNER}@deco\n@deco\ndef start(x): return inner(x)\n"
    )
    assert functools.wraps
    assert [danger.name for danger in scan(source)] == ["planted.inner"]

import ast
import struct
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.codec import skeleton
from stoilo.core.codec.nodes import FunctionRef, Ndarray, NumpyScalar
from stoilo.core.types import RunStatus
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.channel import TASK_JOB, TaskRequest
from stoilo.sandbox.process.run import narrow_level, run_source, run_task
from stoilo.sandbox.process.supervisor import Jail

TESTS = Path(__file__).parents[2]
LEVEL = load_level("numeric")
PLAIN = "import numpy as np\n\ndef run(kwargs):\n    return np.arange(3)\n"
LAST_NAMES = sorted({name.rpartition(".")[2] for name in LEVEL.modules})

PATCHES = """
import sys
from types import ModuleType
from stoilo.policies.levels import load_level
from stoilo.sandbox.language.hardening import is_bound
from stoilo.sandbox.language.runtime import prepare_runtime
from stoilo.sandbox.process.run import narrow_level

def meaning(value):
    # a method that looks at its receiver does what it did, for whoever may call it
    value = value.fget if isinstance(value, property) else value
    return value.__wrapped__ if is_bound(value) else value

def state():
    found = {}
    for module in [m for n, m in sys.modules.items() if not n.startswith("stoilo")]:
        spaces = {module.__name__: module}
        spaces |= {v.__qualname__: v for v in vars(module).values() if type(v) is type}
        for place, space in spaces.items():
            for name, value in vars(space).items():
                if callable(value) or isinstance(value, classmethod | property):
                    found[module.__name__, place, name] = meaning(value)
    return found

level = load_level("numeric")
if NARROW:
    level = narrow_level(level, "import numpy as np")
for name in level.preload:
    __import__(name)
loaded = set(sys.modules)
before = state()
prepare_runtime(level)
after = state()
changed = {k for k, v in after.items() if k[0] in loaded and before.get(k) is not v}
print([changed, loaded])
"""


def test_module_that_is_not_spelled_is_left_out():
    narrow = narrow_level(LEVEL, PLAIN)
    assert "numpy" in narrow.modules
    assert not {"numpy.random", "random", "json"} & set(narrow.modules)
    assert "numpy.ma" not in narrow.preload


@pytest.mark.parametrize(
    "source",
    [
        "import numpy.random",
        "from numpy import random",
        "import numpy as np\nx = np.random.normal()",
        "import numpy as np\nx = np . \\\n random",
        "f'{np.random.normal()}'",
        "'{0.random}'",
    ],
)
def test_module_that_is_spelled_anywhere_is_prepared(source):
    assert "numpy.random" in narrow_level(LEVEL, source).modules


@pytest.mark.parametrize(
    "word",
    ["getattr", "hasattr", "setattr", "delattr", "type", "attrgetter", "methodcaller"],
)
def test_source_that_finds_names_by_other_means_gets_everything(word):
    assert narrow_level(LEVEL, f"{PLAIN}x = {word}\n") is LEVEL


def test_identifier_that_nfkc_respells_gets_everything():
    assert narrow_level(LEVEL, "np.𝓻𝓪𝓷𝓭𝓸𝓶.normal()") is LEVEL


def test_reference_in_the_arguments_counts_as_spelled():
    arguments = skeleton.encode({"f": FunctionRef("np.random.normal")})
    assert "numpy.random" in narrow_level(LEVEL, PLAIN, arguments).modules


def test_level_with_other_libraries_gets_everything():
    tensor = load_level("tensor")
    assert narrow_level(tensor, "x = 1") is tensor


def test_large_arguments_get_everything():
    assert narrow_level(LEVEL, PLAIN, bytes(2 << 20)) is LEVEL


def test_digest_and_kernel_layer_stay_the_level_s():
    narrow = narrow_level(LEVEL, PLAIN)
    bare = {"modules": {}, "preload": (), "overrides": {}, "limits": LEVEL.limits}
    assert msgspec.structs.replace(narrow, **bare) == (
        msgspec.structs.replace(LEVEL, **bare)
    )
    assert narrow.digest == LEVEL.digest


@given(st.lists(st.sampled_from([*LAST_NAMES, "x", "def"])), st.sampled_from(" .,(\n"))
def test_every_module_whose_last_name_occurs_is_kept(words, gap):
    narrow = narrow_level(LEVEL, gap.join(words))
    reachable = {n for n in LEVEL.modules if n.rpartition(".")[2] in words}
    assert reachable <= set(narrow.modules) <= set(LEVEL.modules)


def prepared(*, narrow):
    """Return what preparing a level changes in libraries, and the modules loaded."""
    done = subprocess.run(
        [sys.executable, "-c", PATCHES.replace("NARROW", str(narrow))],
        capture_output=True,
        check=True,
        text=True,
    )
    changed, loaded = ast.literal_eval(done.stdout)
    return changed, loaded


BY_ITS_FACADE = {
    ("dataclasses", "dataclasses", "_get_field"),
    ("inspect", "inspect", "_signature_fromstr"),
}
"""What only `dataclass` calls, which a task without that façade does not have."""


def test_what_facades_change_in_loaded_libraries_is_changed_in_any_case():
    (full, _), (narrow, loaded) = prepared(narrow=False), prepared(narrow=True)
    assert {change for change in full if change[0] in loaded} - BY_ITS_FACADE == narrow
    assert {
        ("copy", "copy", "_reconstruct"),
        ("enum", "EnumType", "__call__"),
    } <= narrow


def test_module_that_a_library_imports_unspelled_is_there_in_a_second_run():
    # the decoder of escapes asks for unicodedata; no word of the source says so
    source = (
        "def run(kwargs):\n"
        "    text = chr(92) + chr(78) + '{BULLET}'\n"
        "    return text.encode().decode('unicode_escape')\n"
    )
    level = load_level("pure")
    assert "unicodedata" not in narrow_level(level, source).modules
    outcome = run_source(source, "run", {}, level)
    assert (outcome.status, outcome.value) == (RunStatus.OK, skeleton.encode("•"))


def programs():
    """Return the benign programs of every level up to numeric; most in `make slow`."""
    cases = TESTS / "attack" / "cases"
    folders = (
        TESTS / "sandbox/programs/benign",
        cases / "benign",
        cases / "benign_numeric",
    )
    found = sorted(path for folder in folders for path in folder.glob("**/*.py"))
    return [
        pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if turn % 4 else [])
        for turn, path in enumerate(found)
    ]


def rounded(node):
    """Return a node as text with floats to ten digits: heaps differ, so last bits may."""
    if isinstance(node, Ndarray | NumpyScalar):
        data = bytes(node.data)
        exact = node.dtype not in {"float64", "complex128"}
        floats = () if exact else struct.unpack(f"<{len(data) // 8}d", data)
        return [node.dtype, data if exact else rounded(floats)]
    if isinstance(node, list | tuple):
        return [rounded(item) for item in node]
    if isinstance(node, dict):
        return {key: rounded(item) for key, item in node.items()}
    return f"{node + 0.0:.9e}" if isinstance(node, float | complex) else repr(node)


@pytest.fixture(scope="module")
def warm():
    with Jail(LEVEL, TASK_JOB) as jail:
        yield jail


@pytest.mark.parametrize("path", programs())
def test_program_cannot_tell_what_was_left_out(warm, path):
    source, kwargs = path.read_text(encoding="utf-8"), {"parts": 3}
    request = TaskRequest(source, "run", skeleton.encode(kwargs))
    full = run_task(warm, request, LEVEL.default_limits())
    alone = run_source(source, "run", kwargs, LEVEL)
    assert full.status is RunStatus.OK, full
    for part in ("status", "error", "output"):
        assert getattr(alone, part) == getattr(full, part)
    mine, theirs = skeleton.decode(alone.value), skeleton.decode(full.value)
    assert rounded(mine) == rounded(theirs)

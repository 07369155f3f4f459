import gc
import importlib
import sys
import types
from collections import deque

import msgspec
import pytest

from stoilo.core.errors import InternalError
from stoilo.core.levels import ModuleRule
from stoilo.sandbox.language.rules import NameKind, attribute_kind
from stoilo.sandbox.language.runtime import build_facades

FORBIDDEN = (
    types.FrameType,
    types.CodeType,
    types.TracebackType,
    types.CellType,
    importlib.machinery.ModuleSpec,
)
POWERS = [open, eval, exec, compile, globals, getattr, setattr, __import__, vars]
MAX_DEPTH = 4


def reachable(facades):
    """Walk every plain attribute, as a task could, and yield (path, object)."""
    queue = deque((name, module, 0) for name, module in facades.items())
    seen = set()
    while queue:
        path, value, depth = queue.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        yield path, value
        if depth == MAX_DEPTH or isinstance(value, int | float | str | bytes):
            continue
        for name in dir(value):
            if attribute_kind(name) is NameKind.PLAIN and not name.startswith("__"):
                try:
                    queue.append((f"{path}.{name}", getattr(value, name), depth + 1))
                except Exception:  # noqa: BLE001, S112 - a library's own lazy attribute
                    continue


@pytest.mark.parametrize("name", ["pure", "numeric"])
@pytest.mark.filterwarnings("ignore")
def test_no_facade_leads_to_modules_frames_or_powers(runtimes, name):
    facades = runtimes[name].facades.modules
    own = set(map(id, facades.values()))
    leaks = [
        path
        for path, value in reachable(facades)
        if (isinstance(value, types.ModuleType) and id(value) not in own)
        or isinstance(value, FORBIDDEN)
        or any(value is power for power in POWERS)
        or (type(value) is dict and "__builtins__" in value)
    ]
    gc.collect()
    assert leaks == []


def test_walk_would_see_a_leak():
    leaky = types.ModuleType("leaky")
    leaky.helper = types.SimpleNamespace(deep=types.SimpleNamespace(module=sys))
    assert any(value is sys for _, value in reachable({"leaky": leaky}))


def test_facades_are_not_in_sys_modules(runtimes):
    for dotted, facade in runtimes["numeric"].facades.modules.items():
        assert sys.modules.get(dotted) is not facade


def test_facade_holds_the_listed_names_only(runtimes):
    tree = runtimes["pure"].facades
    assert not hasattr(tree.modules["random"], "_os")
    assert not hasattr(tree.modules["json"], "codecs")
    listed = set(runtimes["pure"].level.modules["json"].names)
    assert {n for n in vars(tree.modules["json"]) if not n.startswith("__")} == listed


def test_dotted_import_binds_the_top_and_reaches_the_child(runtimes):
    tree = runtimes["numeric"].facades
    assert tree.import_module("numpy.linalg", full=False) is tree.modules["numpy"]
    assert tree.modules["numpy"].linalg is tree.modules["numpy.linalg"]
    with pytest.raises(ImportError):
        tree.import_module("os", full=True)
    with pytest.raises(ImportError):
        tree.import_name("math", "__dict__")


@pytest.mark.parametrize("names", [("no_such_name",), ("codecs",)])
def test_level_that_names_nothing_or_a_module_is_our_fault(pure, names):
    modules = {"json": ModuleRule(names=names)}
    with pytest.raises(InternalError) as caught:
        build_facades(msgspec.structs.replace(pure, modules=modules))
    assert caught.value.code == "STO-P001"

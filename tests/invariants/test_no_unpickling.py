"""I2: nothing that crossed a boundary is unpickled; exec stays inside the sandbox."""

import ast
from pathlib import Path

import pytest

import stoilo

PACKAGE = Path(stoilo.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))
PICKLERS = frozenset(
    {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
)


NARROWED = {"sandbox/libraries/sklearn.py": {"joblib"}, "joblib.py": {"joblib"}}
"""The first exchanges functions of it: one job after the other, a memory without a place.

The second is a backend of its dispatcher and takes its calls as they are, before anything is
pickled; `tests/client/test_joblib.py` looks at a run.
"""


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


def executing(tree):
    for node in ast.walk(tree):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Name) and called.id in {"eval", "exec"}:
            yield node.lineno


@pytest.mark.parametrize(
    "path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_module_imports_no_pickler_and_executes_nothing_outside_the_sandbox(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    name = path.relative_to(PACKAGE).as_posix()
    found = PICKLERS.intersection(imported(tree))
    assert found <= NARROWED.get(name, set())
    if path.relative_to(PACKAGE).parts[0] != "sandbox":
        assert not list(executing(tree))


def test_check_would_notice_both():
    tree = ast.parse("import pickle\neval('1')")
    assert PICKLERS.intersection(imported(tree))
    assert list(executing(tree)) == [2]

import sys
from io import StringIO

import msgspec
import pytest

from stoilo.core.errors import InternalError
from stoilo.sandbox.language.rules import TASK_MODULE
from stoilo.sandbox.language.runtime import TaskPrinter, prepare_runtime
from stoilo.sandbox.language.transformer import compile_source


def load(runtime, source):
    code = compile_source(source, runtime.level)
    return runtime.load(code, TaskPrinter(StringIO()))


def test_task_module_is_registered_while_it_loads(runtimes):
    source = "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int = 1"
    module = load(runtimes["pure"], source)
    assert sys.modules[TASK_MODULE] is module
    assert module.A(2).x == 2


def test_builtins_are_the_levels_and_private_ones(runtimes):
    module = load(runtimes["pure"], "x = 1")
    names = set(module.__dict__["__builtins__"])
    public = {name for name in names if not name.startswith("_")}
    assert public == set(runtimes["pure"].level.builtins)
    assert names.isdisjoint(
        {"open", "eval", "exec", "compile", "globals", "input", "id"}
    )


def test_loads_do_not_share_globals(runtimes):
    first = load(runtimes["pure"], "x = [1]")
    second = load(runtimes["pure"], "y = 1")
    assert not hasattr(second, "x")
    assert first.__dict__["__builtins__"] is not second.__dict__["__builtins__"]


def test_level_that_names_an_unknown_builtin_is_our_fault(pure):
    level = msgspec.structs.replace(pure, builtins=("abs", "no_such_builtin"))
    with pytest.raises(InternalError) as caught:
        prepare_runtime(level)
    assert caught.value.code == "STO-P001"

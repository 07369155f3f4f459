# ruff: noqa: PLC3002, E731 - odd shapes of lambdas are the subject
# ruff: noqa: ARG005 - lambdas are the subject, used or not
from __future__ import annotations

import doctest
import importlib.util
import linecache
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from stoilo.client.capture import capture_task
from stoilo.core.errors import UsageError


def load(path: Path, text: bytes | str) -> types.ModuleType:
    """Write a module and import it."""
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def run_in_shell(folder: Path, program: str) -> str:
    """Run a program that has IPython's `shell`; return what it prints."""
    script = folder / "notebook.py"
    script.write_text(
        "from IPython.core.interactiveshell import InteractiveShell\n"
        f"shell = InteractiveShell.instance()\n{program}"
    )
    return subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "", "HOME": str(folder), "IPYTHONDIR": str(folder)},
    ).stdout


def source_of(func: Any, **kwargs: Any) -> str:
    return capture_task(func, kwargs).task_module


PAIRS = [(lambda kw: kw["a"] + 1), (lambda kw: kw["a"] + 2)]
TRIPLE = {"x": lambda kw: kw, "y": lambda kw: kw["y"], "z": lambda kw: (lambda: kw)()}
CONSTANTS = (lambda kw: 1, lambda kw: 2, lambda kw: None)


@pytest.mark.parametrize(
    ("func", "text"),
    [
        (PAIRS[0], "kw['a'] + 1"),
        (PAIRS[1], "kw['a'] + 2"),
        (TRIPLE["x"], "return kw\n"),
        (TRIPLE["y"], "kw['y']"),
        (TRIPLE["z"], "(lambda: kw)()"),
        (CONSTANTS[0], "return 1"),
        (CONSTANTS[1], "return 2"),
        (CONSTANTS[2], "return None"),
    ],
)
def test_lambdas_on_one_line_are_told_apart(func: Any, text: str) -> None:
    assert text in source_of(func)


def test_a_multi_line_lambda_is_found() -> None:
    func = (
        lambda kw:
        kw["a"]
        * 2
    )  # fmt: skip
    assert source_of(func) == "def func(kw):\n    return kw['a'] * 2\n".replace(
        "func", "task"
    )


def test_several_lambdas_without_positions_are_refused(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from stoilo.client.capture import capture_task\n"
        "fs = [lambda kw: 1, lambda kw: 2]\n"
        "try:\n    capture_task(fs[0], {})\n"
        "except Exception as error:\n    print(error.code)\n"
    )
    command = [sys.executable, "-X", "no_debug_ranges", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "STO-C001\n"


def test_crlf_and_bom_are_normalised(tmp_path: Path) -> None:
    text = b"\xef\xbb\xbfdef f(kw):\r\n    t = '''a\r\nb'''\r\n    return t\r\n"
    source = source_of(load(tmp_path / "windows_file.py", text).f)
    assert "\r" not in source
    assert "\ufeff" not in source


def test_main_block_of_a_script_does_not_travel(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from stoilo.client.capture import capture_task\n"
        "K = 3\n"
        "class Box:\n    side = K\n"
        "def f(kw):\n    return kw['x'] * K + Box.side\n"
        "if __name__ == '__main__':\n"
        "    print(capture_task(f, {'x': 1}).task_module)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True
    )
    assert "__main__" not in done.stdout
    assert "class Box" in done.stdout


def test_a_function_without_source_is_refused() -> None:
    space: dict[str, Any] = {}
    exec("def f(kw):\n    return 1\n", space)  # noqa: S102 - made without source on purpose
    with pytest.raises(UsageError, match="STO-C001"):
        capture_task(space["f"], {})


def test_a_class_without_source_is_refused() -> None:
    made = type("Made", (), {"x": 1})
    with pytest.raises(UsageError, match="STO-C001"):
        capture_task(lambda kw: made().x + kw["a"], {"a": 1})


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "changing.py"
    module = load(path, "def f(kw):\n    return kw['a'] + 1\n")
    path.write_text("def f(kw):\n    return kw['a'] + 222\n")
    linecache.checkcache(str(path))
    with pytest.raises(UsageError, match="STO-C001"):
        capture_task(module.f, {})


def test_a_reloaded_function_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "growing.py"
    module = load(path, "def f(kw):\n    return 1\n")
    assert "return 1" in source_of(module.f)
    module = load(path, "# longer\n\n\ndef f(kw):\n    return 2\n")
    assert "return 2" in source_of(module.f)


def test_functions_of_a_doctest_are_found() -> None:
    text = (
        ">>> from stoilo.client.capture import capture_task\n"
        ">>> def f(kw):\n...     return kw['a'] * 7\n"
        ">>> print(capture_task(f, {}).task_module.strip())\n"
        "def f(kw):\n    return kw['a'] * 7\n"
    )
    test = doctest.DocTestParser().get_doctest(text, {}, "sample", "sample.txt", 0)
    assert doctest.DocTestRunner(verbose=False).run(test).failed == 0


def test_notebook_cells_are_found_and_the_newest_class_wins(tmp_path: Path) -> None:
    done = run_in_shell(
        tmp_path,
        "def run(cell):\n"
        "    shell.run_cell(cell, store_history=True).raise_error()\n"
        "run('from stoilo.client.capture import capture_task; import math')\n"
        "run('class P:\\n    x = 1\\n')\n"
        "run('class P:\\n    x = 2\\n')\n"
        "run('%timeit -n1 -r1 1\\nf = lambda kw: math.sin(P.x)\\n')\n"
        "run('print(capture_task(f, {}).task_module)')\n",
    )
    assert "x = 2" in done
    assert "math.sin(P.x)" in done
    assert "x = 1" not in done


def test_function_in_a_cell_that_also_imports_is_current(tmp_path: Path) -> None:
    """IPython compiles each statement alone: then `math.sin(x)` is other bytecode."""
    done = run_in_shell(
        tmp_path,
        "cell = 'import math\\nfrom stoilo.client.capture import capture_task\\n'\n"
        "cell += 'def f(kw):\\n    return math.sin(kw[\"x\"])\\n'\n"
        "cell += 'print(capture_task(f, dict(x=1)).task_module)'\n"
        "shell.run_cell(cell, store_history=True).raise_error()\n",
    )
    assert "math.sin" in done


def test_shells_own_open_is_the_built_in_one(tmp_path: Path) -> None:
    """IPython hides `open` behind its own; the gate is what refuses files."""
    done = run_in_shell(
        tmp_path,
        "cell = 'from stoilo.client.capture import capture_task\\n'\n"
        "cell += 'print(capture_task(lambda kw: open(kw), {}).task_module)'\n"
        "shell.run_cell(cell, store_history=True).raise_error()\n",
    )
    assert "return open(kw)" in done


def test_private_names_are_spelled_out(tmp_path: Path) -> None:
    module = load(
        tmp_path / "private.py",
        "class _Inner:\n"
        "    def __init__(self):\n        self.__x = 1\n"
        "    def __bump(self, __by=2):\n        self.__x += __by\n"
        "        return self.__x\n"
        "    def run(self):\n        return self.__bump()\n",
    )
    source = source_of(lambda kw: kw["a"].run(), a=module._Inner())
    assert "__init__" in source
    assert "self._Inner__x += _Inner__by" in source
    assert "def _Inner__bump(self, _Inner__by=2)" in source


# -- where each line was written --------------------------------------------------------


def test_lines_of_the_module_know_where_they_were_written(tmp_path: Path) -> None:
    text = (
        "# first\ndef helper(x):\n\n    # why\n    return (1 /\n        x)\n\n"
        "def task(call):\n    # say\n    return helper(call)\n"
    )
    found = capture_task(load(tmp_path / "own.py", text).task)
    rows = dict(zip(found.task_module.splitlines(), found.origins, strict=True))
    assert rows["    return 1 / x"] == "own.py:5"
    assert rows["    return helper(call)"] == "own.py:10"


def test_lines_of_ours_were_written_nowhere(tmp_path: Path) -> None:
    module = load(
        tmp_path / "mine.py", "import functools\nf = functools.partial(dict)\n"
    )
    assert set(capture_task(module.f).origins) == {""}


def test_lines_of_a_cell_are_named_by_its_number(tmp_path: Path) -> None:
    program = (
        "from stoilo.client.capture import capture_task\n"
        "shell.run_cell('1', store_history=True)\n"
        "shell.run_cell('x = 1\\ndef f(call):\\n    return 1', store_history=True)\n"
        "print(capture_task(shell.user_ns['f']).origins[-1])\n"
    )
    assert run_in_shell(tmp_path, program).splitlines()[-1] == "In[2]:3"

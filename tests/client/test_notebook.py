"""The cell magic `%%stoilo` in IPython's own shell, against a server that answers."""

import json
import subprocess
import sys

import pytest

from stoilo.client.notebook import read_kwargs
from stoilo.core.errors import UsageError
from stoilo.testing.service import FakeTaskService

LOADED = "shell.run_cell('%load_ext stoilo').raise_error()\n"


class Notebook:
    """IPython in a process of its own, whose connection file names `service`."""

    def __init__(self, folder, address):
        self._folder = folder
        self._file = folder / "connection.json"
        self._file.write_text(
            json.dumps({"grpc": address.target, "token": address.token})
        )

    def run(self, program):
        """Run a program that has the shell; returns what ended, with its output."""
        script = self._folder / "notebook.py"
        head = "from IPython.core.interactiveshell import InteractiveShell\n"
        head += "shell = InteractiveShell.instance()\n"
        script.write_text(head + LOADED + program)
        home = str(self._folder)
        places = {"HOME": home, "IPYTHONDIR": home, "XDG_STATE_HOME": home}
        return subprocess.run(
            [sys.executable, str(script)],
            capture_output=True,
            text=True,
            check=True,
            env={"PATH": "", "STOILO_CONNECTION": str(self._file), **places},
        )


@pytest.fixture
def service(in_jail):
    return FakeTaskService(in_jail)


@pytest.fixture
def notebook(tmp_path, fake_thread, service):
    return Notebook(tmp_path, fake_thread(service).address)


def cell(line, *lines):
    """Return the statement that runs a cell."""
    text = "\n".join([f"%%stoilo {line}".rstrip(), *lines]) + "\n"
    return f"done = shell.run_cell({text!r}, store_history=True)\n"


GOOD = ["def helper(x):", "    return x * x", "", "def f(call):",
        "    return helper(call['x'])"]  # fmt: skip


def test_cell_is_submitted_and_its_task_named(notebook):
    program = cell('{"x": 6} --into answer', *GOOD)
    done = notebook.run(f"{program}print(shell.user_ns['answer'].result())\n")
    assert done.stdout.splitlines()[-1] == "36"


def test_earlier_cells_and_variables_may_be_used(notebook):
    program = (
        "shell.run_cell('def triple(x):\\n    return 3 * x\\ngiven = {\"x\": 5}')\n"
    )
    program += cell("given", "def f(call):", "    return triple(call['x'])")
    done = notebook.run(f"{program}print(shell.user_ns['task'].result())\n")
    assert done.stdout.splitlines()[-1] == "15"


def test_refused_cell_is_not_sent_and_told_by_its_lines(notebook, service):
    lines = ["def f(call):", "    y = call['x']", "    return y.__globals__"]
    program = cell('{"x": 1}', *lines)
    done = notebook.run(f"{program}print('task' in shell.user_ns, done.success)\n")
    shown = done.stdout.splitlines()
    assert shown[-1] == "False False"
    assert shown[-2].startswith("  cell line 4  ")  # the magic's own line is the first
    assert len(shown) < 8  # no frames of ours
    assert not service.tasks


def test_empty_lines_before_the_function_count_too(notebook):
    lines = ["", "", "def f(call):", "    return call['x'].__globals__"]
    assert "  cell line 5  " in notebook.run(cell('{"x": 1}', *lines)).stdout


def test_what_cannot_travel_is_told_without_our_frames(notebook, service):
    done = notebook.run(cell("{}", "import os", "def f(call):", "    return os.name"))
    assert "STO-C012" in done.stdout
    assert "File" not in done.stdout
    assert not service.tasks


def test_cell_that_fails_is_not_sent(notebook, service):
    done = notebook.run(cell('{"x": 1}', "1 / 0", *GOOD))
    assert "ZeroDivisionError" in done.stdout
    assert not service.tasks


def test_asynchronous_connection_submits_in_the_notebooks_own_loop(notebook):
    program = "shell.run_cell('import stoilo\\nconn = await stoilo.connect()').raise_error()\n"
    program += cell('{"x": 7}', *GOOD)
    program += "shell.run_cell('value = await task.result()').raise_error()\n"
    done = notebook.run(f"{program}print(shell.user_ns['value'])\n")
    assert done.stdout.splitlines()[-1] == "49"


@pytest.mark.parametrize(
    "text", ["[1]", "nothing", "__import__('os').getcwd()", "{", "{'x': len('a')}"]
)
def test_what_is_no_dict_is_refused_and_never_evaluated(text):
    with pytest.raises(UsageError, match="STO-U003"):
        read_kwargs(text, {"number": 1})


def test_dict_is_read_as_written_or_by_its_name():
    given = {"x": object()}
    assert read_kwargs("given", {"given": given}) is given
    assert read_kwargs('{"x": [1, None]}', {}) == {"x": [1, None]}

"""The cell magic ``%%stoilo``: a cell's last function is checked at home and submitted.

    %load_ext stoilo
    %%stoilo {"x": 3} --level numeric --into answer

The cell is run as any other, so its function is there and may use what earlier cells define.
A refused one is not sent: each finding is told with the line of the cell that it is about.
IPython is never imported here; its shell comes in as an argument.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import inspect
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn, Protocol

from stoilo.client.capture.texts import file_of
from stoilo.client.checking import CheckedTask
from stoilo.client.sync import connect_sync
from stoilo.core.errors import StoiloError, UsageError
from stoilo.policies.entry import last_function

_RUNNING: set[asyncio.Future[Any]] = set()  # submissions that nobody else holds


class Shell(Protocol):
    """What is used of IPython's shell."""

    user_ns: dict[str, Any]

    def run_cell(self, cell: str) -> Any:  # noqa: ANN401 - IPython's own
        """Run a cell and show its error, if it has one."""
        ...

    def register_magic_function(self, func: Any, kind: str, name: str) -> None:  # noqa: ANN401
        """Make a function a magic."""
        ...


class _Line(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise ``STO-U003``; the notebook goes on."""
        raise UsageError("STO-U003", message, hint=self.format_usage().strip())


def _parser() -> _Line:
    line = _Line(prog="%%stoilo", add_help=False)
    line.add_argument("--level")
    line.add_argument("--flavor")
    line.add_argument("--label", default="")
    line.add_argument("--conn", default="conn", help="name of the connection")
    line.add_argument("--into", default="task", help="name that the task gets")
    return line


def register(shell: Shell) -> None:
    """Make ``%%stoilo`` known to a notebook."""

    def stoilo(line: str, cell: str) -> object:
        """Check the cell's last function at home, submit it, return the task."""
        try:
            return submit_cell(shell, line, cell)
        except StoiloError as error:
            shown = [str(error)]  # IPython asks it how it is shown: without our frames
            error._render_traceback_ = lambda: shown  # type: ignore[attr-defined]
            raise

    shell.register_magic_function(stoilo, "cell", "stoilo")


def submit_cell(shell: Shell, line: str, cell: str) -> object:
    """Run `cell`, check its last function and submit it with what `line` says.

    Returns:
        The submitted task; over an asynchronous connection the staged one, which is being
        submitted: await its result. None when the cell itself failed, which is shown.

    Raises:
        SourceRefused: the gate refuses it; nothing is sent.
        UsageError: ``STO-U003`` the line or the cell makes no sense; ``STO-C…`` as
            `Connection.create_task`.
    """
    given, dashes, options = line.partition("--")
    said = _parser().parse_args(shlex.split(dashes + options))
    if not shell.run_cell(cell).success:
        return None
    name = last_function(ast.parse(cell))
    if not name:
        raise UsageError(
            "STO-U003", "the cell defines no function", hint="def f(call): …"
        )
    names = shell.user_ns
    kwargs = read_kwargs(given.strip() or "{}", names)
    if said.conn not in names:
        names[said.conn] = connect_sync()
    task = names[said.conn].create_task(
        names[name], kwargs, level=said.level, flavor=said.flavor, label=said.label
    )
    checked = in_cell(task.check(), names[name], cell)
    if not checked.admitted:
        raise checked.error()
    if checked.findings:
        sys.stderr.write(f"{checked}\n")
    submitted = task.submit()
    if inspect.isawaitable(submitted):  # of an asynchronous connection
        _RUNNING.add(running := asyncio.ensure_future(submitted))
        running.add_done_callback(_RUNNING.discard)
    else:
        task = submitted
    names[said.into] = task
    return task


def in_cell(checked: CheckedTask, func: object, cell: str) -> CheckedTask:
    """Return `checked` with the lines of `func`'s cell as its writer sees them.

    IPython counts a cell that a magic runs as one more, and from its first line with
    anything on it; the magic's own line stands before it.
    """
    code = getattr(inspect.unwrap(func), "__code__", None)  # type: ignore[arg-type]  # any
    if code is None:
        return checked
    head = f"{file_of(code)}:"
    before = 1 + cell[: len(cell) - len(cell.lstrip())].count("\n")
    origins = tuple(
        f"cell line {int(one.removeprefix(head)) + before}"
        if one.startswith(head)
        else one
        for one in checked.origins
    )
    return replace(checked, origins=origins)


def read_kwargs(text: str, names: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the dict that `text` is or names; raises ``STO-U003``. Nothing is evaluated."""
    try:
        found = names[text] if text.isidentifier() else ast.literal_eval(text)
    except (KeyError, ValueError, SyntaxError, MemoryError, RecursionError) as error:
        found = error
    if not isinstance(found, Mapping):
        raise UsageError(
            "STO-U003",
            f"{text[:80]!r} is no dict and no name of one",
            hint='%%stoilo {"x": 3}, or %%stoilo NAME',
        )
    return found

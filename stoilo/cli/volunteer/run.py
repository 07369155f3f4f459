"""`stoilo volunteer run`: help every attached project, or one, until stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

import click

from stoilo.cli.volunteer.group import data_option
from stoilo.core.errors import UsageError
from stoilo.executor.volunteer.attachments import Attachments, arguments_of
from stoilo.executor.volunteer.main import main

_GRACE_S = 75.0  # a task under a launcher may take 60 s to write its state down
_MODULE = "stoilo.executor.volunteer"


@click.command(short_help="Help every attached project, or one.")
@click.argument("url", required=False)
@data_option
@click.option("--verbose", is_flag=True, help="Say more on stderr.")
def run(url: str | None, data: Path, *, verbose: bool) -> int:
    """Fetch tasks, verify and run them, for every attached project or the one at URL.

    Stops on Ctrl-C or SIGTERM; what is not finished goes on at the next start. Each project
    has a process of its own: one that fails ends alone.
    """
    attachments = Attachments(data)
    chosen = [attachments.find(url)] if url else attachments.every()
    if not chosen:
        raise UsageError(
            "STO-X045",
            "this computer is attached to no project",
            hint="stoilo volunteer attach URL --key @FILE --root FILE",
        )
    more = ["--verbose"] if verbose else []
    every = [[*arguments_of(one), *more] for one in chosen]
    return main(every[0]) if len(every) == 1 else _run_all(every)


def _run_all(every: list[list[str]]) -> int:
    """Run several volunteers; returns the worst of their exit codes."""
    command = [sys.executable, "-m", _MODULE, "--exit-with-parent"]
    children = [subprocess.Popen([*command, *words]) for words in every]

    def stop(_sign: int, _frame: FrameType | None) -> None:
        for child in children:
            child.terminate()

    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, stop)
    try:
        return max(_wait(child) for child in children)
    finally:
        _end(children)


def _wait(child: subprocess.Popen[bytes]) -> int:
    return code if (code := child.wait()) >= 0 else 1


def _end(children: list[subprocess.Popen[bytes]]) -> None:
    limit = time.monotonic() + _GRACE_S
    for child in children:
        child.terminate()
    for child in children:
        try:
            child.wait(max(0.0, limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

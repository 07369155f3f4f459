"""`stoilo volunteer` and `run`: help a project, or every attached one, until stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

import click

from stoilo.cli.volunteer.attach import (
    attach,
    attachments_at,
    data_option,
    detach,
    how_options,
)
from stoilo.cli.volunteer.opt_in import opt_in
from stoilo.cli.volunteer.status import resume, self_check, status, suspend, update
from stoilo.core.errors import UsageError

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
    from stoilo.executor.volunteer.attachments import arguments_of  # noqa: PLC0415 - an extra
    from stoilo.executor.volunteer.main import main  # noqa: PLC0415 - an extra

    attachments = attachments_at(data)
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


_NEEDED = ("project", "key", "state")


@click.group(invoke_without_command=True)
@click.option("--project", help="Master URL, as printed by the project.  [required]")
@click.option(
    "--key",
    help="Account key, or @FILE: then it is in no process list.  [required]",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of its own; survives restarts.  [required]",
)
@how_options
@click.option("--verbose", is_flag=True, help="Say more on stderr.")
@click.pass_context
def volunteer(context: click.Context, /, **options: Any) -> int | None:  # noqa: ANN401
    """Fetch tasks, verify them, run them in the jail, send results back.

    `attach` once and `run` from then on; or everything in one command as below. Runs until
    stopped with Ctrl-C or SIGTERM; what is not finished goes on at the next start with the
    same --state. What may run here: `stoilo volunteer opt-in`.
    """
    if context.invoked_subcommand is not None:
        return None
    for name in _NEEDED:
        if options[name] is None:
            raise click.UsageError(f"Missing option '--{name}'.", context)
    from stoilo.executor.volunteer.main import main  # noqa: PLC0415 - needs an extra

    return main(_arguments(options))


for command in (
    attach,
    detach,
    opt_in,
    resume,
    run,
    self_check,
    status,
    suspend,
    update,
):
    volunteer.add_command(command)


def _arguments(options: dict[str, Any]) -> list[str]:
    """Return the words for the volunteer's own process."""
    words = []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif value is not None and value is not False:
            words += [flag, str(value)]
    return words

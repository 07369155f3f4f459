"""`stoilo volunteer`: help a project in one command, or see its commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
import platformdirs

from stoilo.cli.groups import TableGroup, command_table
from stoilo.cli.output import FILE, FOLDER
from stoilo.cli.shell import complete_level

data_option = click.option(
    "--data",
    type=FOLDER,
    default=lambda: platformdirs.user_state_path("stoilo") / "volunteer",
    show_default="your state directory",
    help="Where the attachments lie.",
)


_Command = TypeVar("_Command", bound=Callable[..., object])
_HOW = (
    click.option("--root", type=FILE, help="The project's TUF root, a file."),
    click.option(
        "--launcher",
        type=FILE,
        help="Run tasks under this launcher, by its frozen programs, as BOINC would.",
    ),
    click.option(
        "--project-programs",
        is_flag=True,
        help="Fetch launcher and verifier from the project; --root says which are its own.",
    ),
    click.option(
        "--trust-project-programs",
        is_flag=True,
        help="The same without --root: whatever the project sends first is started.",
    ),
    click.option("--ca", type=FILE, help="CA certificate of the project's server."),
    click.option(
        "--slots",
        type=int,
        default=1,
        show_default=True,
        help="Tasks at the same time.",
    ),
    click.option(
        "--max-level",
        help="Only lowers what the opt-in says.",
        shell_complete=complete_level,
    ),
    click.option(
        "--opt-in",
        type=FILE,
        help="One more opt-in file; all files must allow a task.",
    ),
)


def how_options(command: _Command) -> _Command:
    """Add the options that say by what, and how much, tasks run here."""
    for option in reversed(_HOW):
        command = option(command)
    return command


_COMMANDS = {
    "attach": ("volunteer.attach", "Attach this computer to a project."),
    "detach": ("volunteer.attach", "Detach from a project and forget it."),
    "run": ("volunteer.attach", "Help every attached project, or one."),
    "status": ("volunteer.status", "Show projects, tasks, credit and trouble."),
    "history": (
        "volunteer.status",
        "Show what ran here lately, with links to the log.",
    ),
    "suspend": ("volunteer.status", "Let nothing run until --undo."),
    "opt-in": ("volunteer.opt_in", "Say what may run on this computer, or show it."),
    "self-check": (
        "volunteer.status",
        "Compare the launcher here with what the project published.",
    ),
}
_NEEDED = ("project", "key", "state")


@click.group(
    cls=TableGroup, table=command_table(_COMMANDS), invoke_without_command=True
)
@click.option("--project", help="Master URL, as printed by the project.  [required]")
@click.option(
    "--key",
    help="Account key, or @FILE: then it is in no process list.  [required]",
)
@click.option(
    "--state",
    type=FOLDER,
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
    from stoilo.executor.volunteer.main import main  # noqa: PLC0415 - the other commands do without

    return main(_arguments(options))


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

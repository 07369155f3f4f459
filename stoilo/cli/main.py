"""`stoilo`: parse, call, render. One file per command group, imported when asked for."""

from __future__ import annotations

import json
import os
import sys

import click

from stoilo.cli.groups import (
    TableGroup,
    check_platform,
    command_table,
    missing_extra,
    require_extra,
)
from stoilo.core.errors import InternalError, StoiloError, UsageError, show_plainly

# name → (where in `stoilo.cli`, one line for --help): help never imports a group's code.
COMMANDS = {
    "demo": ("demo.command", "Show the whole path on this machine, and check it."),
    "up": ("up", "Run a server, with local volunteers if asked."),
    "task": ("task", "Submit, watch and cancel tasks."),
    "learn": ("groups", "Serve a part of a training's parameters."),
    "policy": ("policy", "Check source against a level, show levels."),
    "sandbox": ("sandbox", "Run code in the jail."),
    "flavor": ("groups", "Name frozen dependency sets."),
    "release": ("groups", "Sign releases offline, publish and check them."),
    "audit": ("groups", "Verify the log and fetch proofs."),
    "volunteer": ("volunteer.group", "Help a project from this machine."),
    "account": ("account.commands:account", "Who may submit to a server, or review."),
    "boinc": ("groups", "Volunteers and computers of a project."),
    "backup": ("backup", "Copy everything a server keeps, while it runs."),
    "restore": ("backup", "Make a server's data directory out of a backup."),
    "config": ("config", "Show the configuration in force."),
    "doctor": (
        "doctor",
        "Check this machine, and a server: what is wrong, what to do.",
    ),
    "completion": ("shell", "Print the line that makes your shell complete stoilo."),
    "man": ("shell", "Print a command's manual page."),
    "explain": ("explain", "Say what a code means, or what levels make of a source."),
}
_EXTRAS = {
    **dict.fromkeys(("sandbox", "learn"), "executor"),
    **dict.fromkeys(("demo", "up", "account", "boinc", "backup", "restore"), "server"),
}


COMPLETING = "_STOILO_COMPLETE"  # click's, of a program with this name
FIRST_STEPS = """\b
First steps
  this machine     stoilo doctor
  see it work      stoilo demo
  a researcher     stoilo policy check FILE, then stoilo task submit FILE --wait
  a volunteer      stoilo volunteer attach URL --key KEY --root FILE
  an operator      stoilo up --data DIR
  completion       stoilo completion >> ~/.bashrc   (zsh, fish: stoilo completion SHELL)
"""


class LazyGroup(TableGroup):
    """The groups of the table; `main` names the extra that is missing."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        if cmd_name == "sandbox":
            check_platform()
        if cmd_name in _EXTRAS:  # all of it, so that one message names all of it
            require_extra(_EXTRAS[cmd_name])
        return super().get_command(ctx, cmd_name)


@click.group(
    cls=LazyGroup,
    table=command_table(COMMANDS),
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=FIRST_STEPS,
)
@click.version_option(package_name="stoilo")
def cli() -> None:
    """Run Python functions on volunteers' computers, with proof that they cannot hurt."""


def render_error(error: StoiloError, *, as_json: bool) -> str:
    """Return the text a user sees for `error`."""
    if as_json:
        return json.dumps(
            {
                "error": {
                    "code": error.code,
                    "message": error.message,
                    "hint": error.hint,
                }
            }
        )
    hint = f"\n  {show_plainly(error.hint)}" if error.hint else ""
    return f"stoilo: {show_plainly(error.message)} [{error.code}]{hint}"


def report_error(error: StoiloError, arguments: list[str]) -> int:
    """Write `error` to stderr; returns its exit code.

    Nothing while a shell completes: it would stand in the middle of somebody's line.
    """
    if COMPLETING in os.environ:
        return error.exit_code
    sys.stderr.write(render_error(error, as_json="--json" in arguments) + "\n")
    return error.exit_code


def report_usage(error: click.ClickException, arguments: list[str]) -> int:
    """Write what is wrong with the command line to stderr; returns its exit code.

    With nothing asked nothing is wrong: help goes to stdout.
    """
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.ctx.get_help())
        return 0
    if "--json" in arguments:
        return report_error(UsageError("STO-U003", error.format_message()), arguments)
    error.show()
    return 2


def system_error(error: OSError) -> StoiloError:
    """Return what a user learns of an answer of the system that nobody expected."""
    named = f": {error.filename}" if isinstance(error.filename, str) else ""
    return InternalError(
        "STO-U006", f"{os.strerror(error.errno) if error.errno else error}{named}"
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code of design §7."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        result = cli.main(args=arguments, prog_name="stoilo", standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):
        return 130
    except click.ClickException as error:
        return report_usage(error, arguments)
    except StoiloError as error:
        return report_error(error, arguments)
    except OSError as error:
        return report_error(system_error(error), arguments)
    except ModuleNotFoundError as error:
        lacking = missing_extra(error.name or "")
        if lacking is None:
            raise
        return report_error(lacking, arguments)
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    sys.exit(main())

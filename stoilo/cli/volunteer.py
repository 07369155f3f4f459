"""`stoilo volunteer`: help a project from this machine, until stopped."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["volunteer"]

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.option("--project", required=True, help="Master URL, as printed by the project.")
@click.option(
    "--key",
    required=True,
    help="Account key, or @FILE: then it is in no process list.",
)
@click.option(
    "--state",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of its own; survives restarts.",
)
@click.option("--root", required=True, type=_FILE, help="The project's TUF root.")
@click.option(
    "--max-level",
    help="Highest level to run; lowers the opt-in file, or stands for one.",
)
@click.option("--ca", type=_FILE, help="CA certificate of the project's server.")
@click.option("--slots", default=1, show_default=True, help="Tasks at the same time.")
@click.option("--verbose", is_flag=True, help="Say more on stderr.")
def volunteer(
    project: str,
    key: str,
    state: Path,
    root: Path,
    max_level: str | None,
    ca: Path | None,
    slots: int,
    verbose: bool,
) -> int:
    """Fetch tasks, verify them, run them in the jail, send results back.

    Runs until stopped with Ctrl-C or SIGTERM; what is not finished goes on at the next
    start with the same --state.
    """
    from stoilo.executor.volunteer import main  # noqa: PLC0415 - needs an extra

    arguments = ["--project", project, "--key", key]
    arguments += ["--state", str(state), "--root", str(root), "--slots", str(slots)]
    arguments += ["--max-level", max_level] if max_level else []
    arguments += ["--ca", str(ca)] if ca else []
    arguments += ["--verbose"] if verbose else []
    return main(arguments)

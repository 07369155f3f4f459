"""`stoilo mirror`: the key with which HTTP caches fetch a project's shared files."""

from __future__ import annotations

from pathlib import Path

import click

from stoilo.core.errors import UsageError


@click.group()
def mirror() -> None:
    """Let HTTP caches hold a project's shared files, so that hosts fetch them there."""


@mirror.command()
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Data directory of the project.",
)
def key(data: Path) -> None:
    """Print the key that the project's mirrors need; make it on first use.

    Who has it can read every file that tasks share. Send it to the keepers of mirrors by
    a way that you trust.
    """
    from stoilo.server.engines.embedded.accounts.accounts import (  # noqa: PLC0415 - heavy
        load_secret,
    )

    if not (data / "engine").is_dir():
        raise UsageError(
            "STO-U004",
            f"{data.name or data} is not the data directory of a server",
            hint="start one with `stoilo up --data DIR`",
        )
    click.echo(load_secret(data / "engine" / "mirror.secret").hex())

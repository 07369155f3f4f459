"""`stoilo config show`: the settings in force, and where each one comes from."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import click

from stoilo.cli.groups import require_extra
from stoilo.cli.output import FOLDER, JSON, say


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: which process it is of, its value without secrets, its origin."""

    process: str
    name: str
    value: str | int
    origin: str


@click.group()
def config() -> None:
    """Show the configuration in force."""


@config.command()
@click.option(
    "--data",
    type=FOLDER,
    help="A server's data directory, to show that server's settings too.",
)
@click.option("--origin", "origins", is_flag=True, help="Say where each value is from.")
@JSON
def show(data: Path | None, origins: bool, as_json: bool) -> None:
    """Show settings as defaults, file and environment leave them.

    Example: stoilo config show --data project --origin
    """
    settings = client_settings()
    if data is not None:
        settings += server_settings(data)
    lines = []
    for setting in settings:
        origin = f"  ({setting.origin})" if origins else ""
        lines.append(f"{setting.process}.{setting.name} = {setting.value!r}{origin}")
    say(settings, "\n".join(lines), as_json=as_json)


def client_settings() -> list[Setting]:
    """Return the researcher's side: the connection file that connecting would read."""
    path = os.environ.get("STOILO_CONNECTION")
    origin = "default" if path is None else "environment"
    return [Setting("client", "connection", path or "", origin)]


def server_settings(data: Path) -> list[Setting]:
    """Return the settings that `stoilo up --data` would start with.

    Raises:
        UsageError: ``STO-U002`` without the server extra; the configuration's own codes.
    """
    require_extra("server")
    # A researcher's installation shows its own settings without it.
    from stoilo.server.config import load_config, without_password  # noqa: PLC0415

    loaded, origin = load_config(data.absolute(), {}, os.environ)
    return [
        Setting("server", name, without_password(getattr(loaded, name)), where)
        for name, where in sorted(origin.items())
    ]

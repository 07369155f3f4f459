"""`stoilo config show`: the settings in force, and where each one comes from."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

import click

from stoilo.core.errors import UsageError

_PASSWORD = re.compile(r"(?<=://)([^/@:]*):[^/@]*(?=@)")


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
    type=click.Path(path_type=Path, file_okay=False),
    help="A server's data directory, to show that server's settings too.",
)
@click.option("--origin", "origins", is_flag=True, help="Say where each value is from.")
@click.option("--json", "as_json", is_flag=True, help="One JSON list.")
def show(data: Path | None, origins: bool, as_json: bool) -> None:
    """Show settings as defaults, file and environment leave them.

    Example: stoilo config show --data project --origin
    """
    settings = client_settings()
    if data is not None:
        settings += server_settings(data)
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(setting) for setting in settings]))
        return
    for setting in settings:
        origin = f"  ({setting.origin})" if origins else ""
        click.echo(f"{setting.process}.{setting.name} = {setting.value!r}{origin}")


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
    try:
        from stoilo.server.config import load_config  # noqa: PLC0415 - extra
    except ModuleNotFoundError as error:
        raise UsageError(
            "STO-U002",
            f"showing a server's settings needs the server extra ({error.name})",
            hint="pip install 'stoilo[server]'",
        ) from error
    loaded, origin = load_config(data.absolute(), {}, os.environ)
    return [
        Setting("server", name, _without_password(getattr(loaded, name)), where)
        for name, where in sorted(origin.items())
    ]


def _without_password(value: str | int) -> str | int:
    return _PASSWORD.sub(r"\1:***", value) if isinstance(value, str) else value

"""`stoilo release online-keys`: the keys that a server makes for itself."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from stoilo.core.errors import InternalError, UsageError

if TYPE_CHECKING:
    from stoilo.signer.onlinekeys import OnlineKeys

__all__ = ["online_keys"]

_REPLACEABLE = ("online", "revocation", "gate")


@click.command("online-keys")
@click.option(
    "--data",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Data directory of the server; its private keys stay there.",
)
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="File of the public parts, for the ceremony.",
)
@click.option("--origin", help="Name of project and log, at the first time.")
@click.option(
    "--epochs",
    type=int,
    default=4,
    show_default=True,
    help="Gate epochs to have ahead, 13 days apart; a thief of the server has them all.",
)
@click.option(
    "--replace",
    type=click.Choice(_REPLACEABLE),
    multiple=True,
    help="Make a new key beside the present one, for example after a theft.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def online_keys(
    data: Path,
    out: Path,
    origin: str | None,
    epochs: int,
    replace: tuple[str, ...],
    *,
    as_json: bool,
) -> None:
    """Make the server's own keys; write their public parts for the ceremony.

    Run it on the server, also while it runs. Nothing that these keys sign counts before
    a ceremony has certified them. Call it again for further gate epochs.
    """
    from stoilo.signer.onlinekeys import (  # noqa: PLC0415 - heavy
        make_online_keys,
        render_online_keys,
        requested_keys,
    )

    known = requested_keys(data / "keys")
    name = origin or (known.origin if known else _configured_origin(data))
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    keys = make_online_keys(
        data / "keys", name, int(time.time()), epochs=epochs, replace=replace
    )
    _write(out, render_online_keys(keys))
    if as_json:
        click.echo(msgspec.json.encode(keys).decode())
    else:
        _show(keys, out, first=not (data / "keys" / "root.json").exists())


def _configured_origin(data: Path) -> str:
    """Return the origin of the server's configuration; raises ``STO-K092``."""
    from stoilo.server.config import DEFAULT_ORIGIN, load_config  # noqa: PLC0415 - extra

    config, _ = load_config(data, {}, os.environ)
    if config.origin == DEFAULT_ORIGIN:
        raise UsageError(
            "STO-K092",
            "the project has no name yet",
            hint="--origin example.org/project, the same for ever: the log has it too",
        )
    return config.origin


def _write(out: Path, data: bytes) -> None:
    """Write a public file; raises ``STO-U006``."""
    try:
        out.write_bytes(data)
    except OSError as error:
        raise InternalError(
            "STO-U006", f"{out.name}: {os.strerror(error.errno or 0)}"
        ) from error


def _show(keys: OnlineKeys, out: Path, *, first: bool) -> None:
    """Say what was made, and what comes next."""
    last = keys.epochs[-1]
    until = time.strftime("%Y-%m-%d", time.gmtime(last.not_after))
    numbers = ", ".join(str(epoch.epoch) for epoch in keys.epochs)
    click.echo(f"project         {keys.origin}")
    click.echo(f"log             {keys.log_vkey}")
    click.echo(f"online          {keys.online}")
    click.echo(f"revocation      {keys.revocation}")
    click.echo(f"gate epochs     {numbers} (until {until})")
    click.echo(f"written         {out}; the private keys stay on this machine")
    click.echo("")
    step = "release init" if first else "release request"
    click.echo(f"Next: carry {out.name} to the ceremony: stoilo {step} --help")

"""`stoilo metrics`: what a server shows to Prometheus, and who may read it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from stoilo.core.errors import UsageError

DAY_S = 86_400


@click.group()
def metrics() -> None:
    """Names of a server's figures, and tokens to read them."""


@metrics.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON list.")
def list_metrics(as_json: bool) -> None:
    """List every metric of `/metrics`."""
    from stoilo.server.watching.metrics import METRICS  # noqa: PLC0415 - extra

    if as_json:
        rows = [
            {"name": m.name, "kind": m.kind, "labels": m.labels, "help": m.help}
            for m in METRICS
        ]
        click.echo(json.dumps(rows))
        return
    for one in METRICS:
        labels = f"{{{','.join(one.labels)}}}" if one.labels else ""
        click.echo(f"{one.name}{labels} ({one.kind}): {one.help}")


@metrics.command()
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="The server's data directory.",
)
@click.option("--name", default="prometheus", help="Who gets it: an account's name.")
@click.option("--days", type=click.IntRange(1, 3650), default=365, help="Its life.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def token(data: Path, name: str, days: int, as_json: bool) -> None:
    """Make a token that reads `/metrics` and the reasons of `/readyz`, nothing else.

    It is shown once. Works beside a running server; the log notes it.
    """
    import os  # noqa: PLC0415

    from stoilo.server.admission import tokens  # noqa: PLC0415 - extra
    from stoilo.server.config import load_config  # noqa: PLC0415
    from stoilo.server.db.store import Store  # noqa: PLC0415
    from stoilo.server.watching.routes import METRICS_SCOPE  # noqa: PLC0415

    config, _ = load_config(data.absolute(), {}, os.environ)
    if not (data / "keys").is_dir():
        raise UsageError(
            "STO-U004",
            f"{data.name or data} is not the data directory of a server",
            hint="start one with `stoilo up --data DIR`",
        )
    store = Store.open(config.database_url)
    try:
        with store.write() as connection:
            made = tokens.issue_token(
                connection,
                name,
                tokens.Role.OPERATOR,
                int(time.time()),
                scope=METRICS_SCOPE,
                lifetime_s=days * DAY_S,
            )
    finally:
        store.close()
    click.echo(json.dumps({"token": made, "days": days}) if as_json else made)

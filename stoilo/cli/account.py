"""`stoilo account`: who may submit to a server, and whose access ends (operator)."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click
import msgspec

from stoilo.cli.boinc.data import DATA, JSON, echo_table, now
from stoilo.cli.extras import require_extra
from stoilo.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stoilo.server.db.store import Store


DAY_S = 86_400
TOKEN_CHARS = 256


@click.group()
def account() -> None:
    """Researchers' accounts of a server, and their tokens.

    All commands work beside a running server, which looks at every call who may make it.
    """


@contextmanager
def _open(data: Path) -> Iterator[Store]:
    require_extra("server")
    from stoilo.server.operations.accounts import open_accounts  # noqa: PLC0415 - needs an extra

    with open_accounts(data, os.environ) as store:
        yield store


@account.command("list")
@DATA
@click.argument("name", required=False)
@JSON
def list_accounts(data: Path, name: str | None, as_json: bool) -> None:
    """List the accounts, with good tokens and open tasks; of NAME, its tokens.

    The text of a token is kept nowhere.
    """
    if name is not None:
        _list_tokens(data, name, as_json=as_json)
        return
    with _open(data) as store:
        from stoilo.server.operations.accounts import list_accounts as read  # noqa: PLC0415

        found = read(store, now())
    if as_json:
        click.echo(msgspec.json.encode({"accounts": found}).decode())
        return
    head = ("name", "roles", "tokens", "open tasks", "made", "")
    rows = [
        (
            one.name,
            ",".join(one.roles),
            one.tokens,
            one.open_tasks,
            _day(one.created_at),
            f"suspended {_day(one.suspended_at)} {one.reason}".rstrip()
            if one.suspended_at
            else "",
        )
        for one in found
    ]
    echo_table([head, *rows])


def _list_tokens(data: Path, name: str, *, as_json: bool) -> None:
    with _open(data) as store:
        from stoilo.server.operations.accounts import list_tokens  # noqa: PLC0415 - needs an extra

        found = list_tokens(store, name)
    if as_json:
        click.echo(msgspec.json.encode({"name": name, "tokens": found}).decode())
        return
    head = ("token", "role", "scope", "made", "until", "")
    rows = [
        (
            one.token,
            one.role,
            one.scope,
            _day(one.created_at),
            _day(one.expires_at),
            f"revoked {_day(one.revoked_at)}" if one.revoked_at else "",
        )
        for one in found
    ]
    echo_table([head, *rows])


@account.command()
@DATA
@click.argument("name")
@click.option(
    "--connection",
    "place",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="New file for the researcher, 0600.",
)
@click.option("--days", type=click.IntRange(1, 3650), default=365, help="Its life.")
@JSON
def add(data: Path, name: str, place: Path, days: int, as_json: bool) -> None:
    """Give the account NAME, made if new, one more token in a connection file."""
    with _open(data) as store:
        from stoilo.server.operations.accounts import add_researcher  # noqa: PLC0415 - extra
        from stoilo.signer.key_files import write_private_file  # noqa: PLC0415 - extra

        made = add_researcher(store, data, name, days * DAY_S, now())
    text = msgspec.json.format(msgspec.json.encode(made), indent=2)
    try:
        write_private_file(place, text + b"\n")
    except OSError as error:
        raise UsageError(
            "STO-U004", f"{place.name} cannot be written: {error.strerror}"
        ) from error
    if as_json:
        _print({"name": name, "connection": str(place), "days": days})
    else:
        click.echo(f"give {place} to {name}, and to nobody else")


@account.command()
@DATA
@click.argument("name", required=False)
@click.option(
    "--token", metavar="ID", help="One of its tokens, as `list NAME` shows it."
)
@click.option("--all", "every", is_flag=True, help="Every token of the account.")
@click.option(
    "--leaked",
    type=click.File("r"),
    metavar="FILE",
    help="A token that turned up somewhere: a file with its text, - for stdin.",
)
@JSON
def revoke(
    data: Path,
    name: str | None,
    token: str | None,
    every: bool,
    leaked: TextIO | None,
    as_json: bool,
) -> None:
    """Make tokens of the account NAME useless, at once and for good.

    Tasks that were submitted with them go on; the account's other tokens stay good. `up`
    makes the local researcher a new token at its next start.
    """
    if (name is None) == (leaked is None) or (
        name is not None and bool(token) == every
    ):
        raise UsageError(
            "STO-U004", "name an account with --token or --all, or --leaked"
        )
    with _open(data) as store:
        from stoilo.server.operations import accounts  # noqa: PLC0415 - needs an extra

        if leaked is not None:
            text = leaked.read(TOKEN_CHARS + 1).strip()
            count = int(accounts.revoke_leaked(store, text, now()))
        else:
            count = accounts.revoke(store, name or "", token or "", now())
    if as_json:
        _print({"revoked": count})
    else:
        click.echo(f"{count} revoked")


@account.command()
@DATA
@click.argument("name")
@click.option("--reason", default="", help="For yourself; shown by `list`.")
@click.option("--cancel", is_flag=True, help="Cancel the account's open tasks too.")
@click.option("--undo", is_flag=True, help="Let it submit again.")
@JSON
def suspend(
    data: Path, name: str, reason: str, cancel: bool, undo: bool, as_json: bool
) -> None:
    """Let the account NAME submit nothing (STO-R009), until --undo.

    It may still look at its tasks, fetch their results and cancel them. Tasks that were
    taken before go on, unless --cancel ends them.
    """
    with _open(data) as store:
        from stoilo.server.operations import accounts  # noqa: PLC0415 - needs an extra

        if undo:
            done = accounts.resume(store, name, now())
        else:
            done = accounts.suspend(store, name, reason, now())
        cancelled = accounts.cancel_tasks(store, name, now()) if cancel else 0
    if undo:
        if as_json:
            _print({"name": name, "resumed": done})
        else:
            click.echo("resumed" if done else "it was not suspended")
        return
    if as_json:
        _print({"name": name, "suspended": done, "cancelled": cancelled})
        return
    click.echo("suspended" if done else "it was suspended before")
    if cancel:
        click.echo(f"{cancelled} tasks cancelled")


@account.command("service-key")
@DATA
@click.argument("service", type=click.Choice(["metrics", "mirrors"]))
@click.option("--days", type=click.IntRange(1, 3650), default=365, help="Of metrics.")
@JSON
def service_key(data: Path, service: str, days: int, as_json: bool) -> None:
    """Print what a service beside the server needs; give it to its keeper alone.

    metrics: a new token that reads `/metrics` and the reasons of `/readyz`, nothing else;
    it is shown once, and the log notes it. mirrors: the key with which HTTP caches fetch
    shared files, the same each time; who has it can read every file that tasks share.
    """
    directory = data / ("keys" if service == "metrics" else "engine")
    if not directory.is_dir():
        raise UsageError(
            "STO-U004",
            f"{data.name or data} is not the data directory of a server",
            hint="start one with `stoilo up --data DIR`",
        )
    if service == "mirrors":
        from stoilo.server.engines.embedded.accounts.accounts import (  # noqa: PLC0415 - heavy
            load_secret,
        )

        made = load_secret(directory / "mirror.secret").hex()
    else:
        made = _make_metrics_token(data, days)
    if as_json:
        _print({"key": made})
    else:
        click.echo(made)


def _make_metrics_token(data: Path, days: int) -> str:
    with _open(data) as store:
        from stoilo.server.admission import tokens  # noqa: PLC0415 - needs an extra
        from stoilo.server.watching.watch import METRICS_SCOPE  # noqa: PLC0415

        with store.write() as connection:
            return tokens.issue_token(
                connection,
                "prometheus",
                tokens.Role.OPERATOR,
                now(),
                scope=METRICS_SCOPE,
                lifetime_s=days * DAY_S,
            )


def _print(value: dict[str, object]) -> None:
    click.echo(json.dumps(value))


def _day(seconds: int) -> str:
    return datetime.fromtimestamp(min(seconds, 2**36), UTC).strftime("%Y-%m-%d")

"""`stoilo account show` and `token`: for the operator, or for one's own account."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click
import msgspec
from google.protobuf.json_format import MessageToDict

from stoilo.cli.output import (
    CONNECTION,
    DATA,
    DAY_S,
    FILE,
    FOLDER,
    JSON,
    cannot_write,
    now,
    read_file,
    render_day,
    render_table,
    say,
)
from stoilo.client.address import resolve_address
from stoilo.client.connection import connect
from stoilo.core.errors import UsageError
from stoilo.core.rpc import accounts_pb2 as pb
from stoilo.server.app.trust import load_policy
from stoilo.server.config import load_config
from stoilo.server.data_directory import ConnectionFile
from stoilo.server.operations import access, accounts, people

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stoilo.server.db.store import Store


TOKEN_CHARS = 256
DAYS = click.option(
    "--days", type=click.IntRange(1, people.MOST_DAYS), default=365, help="Its life."
)


def WHOSE(command: Callable[..., None]) -> Callable[..., None]:  # noqa: N802 - as options are
    """Add what an operator names an account by, and a holder his own."""
    of_data = click.option(
        "--data", type=FOLDER, help="For the operator; else your own."
    )
    named = click.argument("name", required=False)
    return of_data(named(CONNECTION(JSON(command))))


def open_accounts(data: Path) -> contextlib.AbstractContextManager[Store]:
    """Return the tables of a data directory, for a block."""
    return access.open_accounts(data, os.environ)


def write_connection(place: Path, made: ConnectionFile) -> None:
    """Write a connection file; raises ``STO-U004``."""
    try:
        made.write(place)
    except OSError as error:
        raise cannot_write(place, error) from error


def _ask(connection: str | None, method: str, request: object) -> Any:  # noqa: ANN401
    """Return the server's answer to a call about one's own account."""

    async def inner() -> object:
        async with connect(connection) as server:
            return await server.session.wire.call(method, request)

    return asyncio.run(inner())


def _check_whose(data: Path | None, name: str | None) -> None:
    if (name is None) != (data is None):
        raise UsageError("STO-U003", "NAME goes with --data; without, it is your own")


@click.command()
@WHOSE
def show(
    data: Path | None, name: str | None, connection: str | None, *, as_json: bool
) -> None:
    """Show the account NAME, or your own: what it may use and has used, its tokens.

    The text of a token is kept nowhere.
    """
    _check_whose(data, name)
    if data is None or name is None:
        found = _own_facts(connection)
    else:
        policy = load_policy(load_config(data.absolute(), {}, os.environ)[0].policy)
        with open_accounts(data) as store:
            found = accounts.describe(store, name, policy, now())
    head = [found.name, f"group {found.group}" * bool(found.group)]
    head += [f"suspended {render_day(found.suspended_at)}" * bool(found.suspended_at)]
    used: list[Sequence[object]] = [("of", "what", "used", "of at most")]
    used += [(one.whose, one.what, one.used, one.most) for one in found.uses]
    rows: list[Sequence[object]] = [
        ("token", "name", "role", "scope", "made", "until", "")
    ]
    for one in found.tokens:
        ended = f"revoked {render_day(one.revoked_at)}" if one.revoked_at else ""
        days = (render_day(one.created_at), render_day(one.expires_at))
        rows.append((one.token, one.name, one.role, one.scope, *days, ended))
    lines = ["  ".join(filter(None, head)), f"share {found.share}"]
    text = "\n".join([*lines, render_table(used), render_table(rows)])
    say(found, text, as_json=as_json)


def _own_facts(connection: str | None) -> accounts.AccountFacts:
    said = _ask(connection, "ShowAccount", pb.ShowAccountRequest())
    values = MessageToDict(
        said,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )  # 64-bit numbers as text
    return msgspec.convert(values, accounts.AccountFacts, strict=False)


@click.group("token")
def token_group() -> None:
    """Tokens: what opens an account, each with a name and an end."""


@token_group.command("new")
@WHOSE
@click.option("--to", "place", type=FILE, required=True, help="New file, 0600.")
@DAYS
@click.option("--label", default="", help="Your word for it, shown by `show`.")
def new_token(
    data: Path | None,
    name: str | None,
    connection: str | None,
    *,
    place: Path,
    days: int,
    label: str,
    as_json: bool,
) -> None:
    """Write a connection file with one more token for the account NAME, or your own.

    One's own is like the token that asks for it, and lives up to 365 days.
    """
    _check_whose(data, name)
    if data is None or name is None:
        old = read_file(Path(resolve_address(connection).source))
        asked = pb.IssueTokenRequest(name=label, days=days)
        made = msgspec.structs.replace(
            msgspec.json.decode(old, type=ConnectionFile),
            token=_ask(connection, "IssueToken", asked).token,
        )
    else:
        with open_accounts(data) as store:
            made = access.add_token(store, data, name, days * DAY_S, now(), label)
    write_connection(place, made)
    say({"connection": str(place), "days": days}, f"{place} written", as_json=as_json)


@token_group.command()
@WHOSE
@click.option("--token", metavar="ID", help="One of its tokens, as `show` names it.")
@click.option("--all", "every", is_flag=True, help="Every token of the account.")
@click.option(
    "--leaked", type=click.File("r"), metavar="FILE", help="Its text; - stdin."
)
def revoke(
    data: Path | None,
    name: str | None,
    connection: str | None,
    *,
    token: str | None,
    every: bool,
    leaked: TextIO | None,
    as_json: bool,
) -> None:
    """Make tokens of the account NAME, or one of your own, useless at once and for good.

    Tasks that were submitted with them go on; the account's other tokens stay good. `up`
    makes the local researcher a new token at its next start. --leaked: a token that turned
    up somewhere, by a file with its text.
    """
    if data is None and token and (name, every, leaked) == (None, False, None):
        asked = pb.RevokeTokenRequest(token=token)
        count = int(_ask(connection, "RevokeToken", asked).revoked)
        say({"revoked": count}, f"{count} revoked", as_json=as_json)
        return
    ways = (bool(token), every, leaked is not None)
    if data is None or sum(ways) != 1 or (name is None) != (leaked is not None):
        raise UsageError(
            "STO-U003",
            "name --data and an account with --token or --all, or --leaked; "
            "or only --token, one of your own",
        )
    with open_accounts(data) as store:
        if leaked is not None:
            text = leaked.read(TOKEN_CHARS + 1).strip()
            count = int(access.revoke_leaked(store, text, now()))
        else:
            count = access.revoke(store, name or "", token or "", now())
    say({"revoked": count}, f"{count} revoked", as_json=as_json)


@token_group.command()
@DATA
@click.argument("name")
@click.option("--token", metavar="ID", default="", help="One of them; else all.")
@click.option("--days", type=click.IntRange(0, people.MOST_DAYS), required=True)
@JSON
def expire(data: Path, name: str, *, token: str, days: int, as_json: bool) -> None:
    """Let tokens of the account NAME end in so many days, if they would end later."""
    with open_accounts(data) as store:
        count = access.expire(store, name, token, now() + days * DAY_S, now())
    say({"name": name, "changed": count}, f"{count} end earlier", as_json=as_json)

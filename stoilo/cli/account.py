"""`stoilo account`: who may submit to a server or review, and whose access ends (operator)."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click
import msgspec

from stoilo.cli.output import (
    DATA,
    DAY_S,
    FILE,
    JSON,
    cannot_write,
    not_a_data_directory,
    now,
    render_day,
    render_table,
    say,
)
from stoilo.core.errors import UsageError
from stoilo.server.admission import tokens
from stoilo.server.engines.embedded.accounts.accounts import load_secret
from stoilo.server.operations import accounts
from stoilo.server.watching.watch import METRICS_SCOPE
from stoilo.signer.key_files import write_private_file

if TYPE_CHECKING:
    from stoilo.server.data_directory import ConnectionFile
    from stoilo.server.db.store import Store


TOKEN_CHARS = 256


@click.group()
def account() -> None:
    """Researchers' and reviewers' accounts of a server, and their tokens.

    All commands work beside a running server, which looks at every call who may make it.
    """


def _open(data: Path) -> contextlib.AbstractContextManager[Store]:
    return accounts.open_accounts(data, os.environ)


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
        found = accounts.list_accounts(store, now())
    rows: list[tuple[object, ...]] = [
        ("name", "roles", "tokens", "open tasks", "made", "")
    ]
    for one in found:
        ended = f"suspended {render_day(one.suspended_at)} {one.reason}"
        told = ended if one.suspended_at else ""
        made = render_day(one.created_at)
        roles = ",".join(one.roles)
        rows.append((one.name, roles, one.tokens, one.open_tasks, made, told))
    say({"accounts": found}, render_table(rows), as_json=as_json)


def _list_tokens(data: Path, name: str, *, as_json: bool) -> None:
    with _open(data) as store:
        found = accounts.list_tokens(store, name)
    rows: list[tuple[object, ...]] = [("token", "role", "scope", "made", "until", "")]
    for one in found:
        ended = f"revoked {render_day(one.revoked_at)}" if one.revoked_at else ""
        days = (render_day(one.created_at), render_day(one.expires_at))
        rows.append((one.token, one.role, one.scope, *days, ended))
    say({"name": name, "tokens": found}, render_table(rows), as_json=as_json)


@account.command()
@DATA
@click.argument("name")
@click.option(
    "--connection",
    "place",
    required=True,
    type=FILE,
    help="New file for the researcher, 0600.",
)
@click.option("--days", type=click.IntRange(1, 3650), default=365, help="Its life.")
@JSON
def add(data: Path, name: str, place: Path, days: int, as_json: bool) -> None:
    """Give the account NAME, made if new, one more token in a connection file."""
    with _open(data) as store:
        made = accounts.add_researcher(store, data, name, days * DAY_S, now())
    _write_connection(place, made)
    record = {"name": name, "connection": str(place), "days": days}
    say(record, f"give {place} to {name}, and to nobody else", as_json=as_json)


def _write_connection(place: Path, made: ConnectionFile) -> None:
    text = msgspec.json.format(msgspec.json.encode(made), indent=2)
    try:
        write_private_file(place, text + b"\n")
    except OSError as error:
        raise cannot_write(place, error) from error


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
        if leaked is not None:
            text = leaked.read(TOKEN_CHARS + 1).strip()
            count = int(accounts.revoke_leaked(store, text, now()))
        else:
            count = accounts.revoke(store, name or "", token or "", now())
    say({"revoked": count}, f"{count} revoked", as_json=as_json)


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
        if undo:
            done = accounts.resume(store, name, now())
        else:
            done = accounts.suspend(store, name, reason, now())
        cancelled = accounts.cancel_tasks(store, name, now()) if cancel else 0
    if undo:
        text = "resumed" if done else "it was not suspended"
        say({"name": name, "resumed": done}, text, as_json=as_json)
        return
    text = "suspended" if done else "it was suspended before"
    text += f"\n{cancelled} tasks cancelled" if cancel else ""
    record = {"name": name, "suspended": done, "cancelled": cancelled}
    say(record, text, as_json=as_json)


@account.command()
@DATA
@click.option("--enroll", metavar="NAME", help="Make this account a reviewer's.")
@click.option("--key", help="With --enroll: his public key, of `review keygen`.")
@click.option(
    "--account",
    "others",
    multiple=True,
    help="With --enroll: another account of the same person; its tasks he cannot review.",
)
@click.option(
    "--connection", "place", type=FILE, help="With --enroll: new file for him, 0600."
)
@click.option("--withdraw", metavar="KEY", help="Take this public key out.")
@click.option(
    "--proposal",
    type=FILE,
    help="Of a released project: write the list for the next ceremony here.",
)
@JSON
def reviewers(
    data: Path,
    enroll: str | None,
    key: str | None,
    others: tuple[str, ...],
    place: Path | None,
    withdraw: str | None,
    proposal: Path | None,
    as_json: bool,
) -> None:
    """List the reviewers that the release names; enroll one, or withdraw a key.

    Reviewers of a released project are named in a ceremony: with --proposal the account
    is made here, and the list to sign is written. Executors that have the new metadata
    run nothing more on the strength of a withdrawn key's reviews.
    """
    step = f"stoilo release request FOLDER --release DIR --reviewers {proposal}"
    then = f"it counts once people have signed it: {step}" if proposal else ""
    if enroll is not None:
        if withdraw is not None or key is None or place is None:
            raise UsageError("STO-U004", "--enroll goes with --key and --connection")
        key = key.strip().lower()
        made = accounts.enroll(data, enroll, key, others, os.environ, proposal)
        _write_connection(place, made)
        text = f"{enroll} is a reviewer; give him {place}, and to nobody else\n{then}"
        record = {"name": enroll, "key": key, "connection": str(place)}
        say(record, text.strip(), as_json=as_json)
    elif withdraw is not None:
        key = withdraw.strip().lower()
        accounts.withdraw(data, key, proposal)
        say(
            {"key": key, "withdrawn": proposal is None},
            then or "withdrawn",
            as_json=as_json,
        )
    else:
        named = accounts.reviewers_of(data)
        lines = [f"{one.key}  {one.name}" for one in named]
        say({"reviewers": named}, "\n".join(lines), as_json=as_json)


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
        raise not_a_data_directory(data)
    if service == "mirrors":
        made = load_secret(directory / "mirror.secret").hex()
    else:
        made = _make_metrics_token(data, days)
    say({"key": made}, made, as_json=as_json)


def _make_metrics_token(data: Path, days: int) -> str:
    with _open(data) as store, store.write() as connection:
        return tokens.issue_token(
            connection,
            "prometheus",
            tokens.Role.OPERATOR,
            now(),
            scope=METRICS_SCOPE,
            lifetime_s=days * DAY_S,
        )

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
_SIGNED_IN = {"console": tokens.Role.RESEARCHER, "operation": tokens.Role.OPERATOR}
PROPOSAL = click.option(
    "--proposal",
    type=FILE,
    help="Of a released project's reviewer: write the list for the next ceremony here.",
)


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
@click.option("--reviewers", is_flag=True, help="List whom the release names instead.")
@JSON
def list_accounts(
    data: Path, name: str | None, *, reviewers: bool, as_json: bool
) -> None:
    """List the accounts, with good tokens and open tasks; of NAME, its tokens.

    The text of a token is kept nowhere.
    """
    if reviewers:
        named = accounts.reviewers_of(data)
        text = "\n".join(f"{one.key}  {one.name}" for one in named)
        say({"reviewers": named}, text, as_json=as_json)
        return
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
@click.argument("name", required=False)
@click.option(
    "--for",
    "what",
    type=click.Choice(["research", "review", *_SIGNED_IN, "metrics", "mirrors"]),
    default="research",
    show_default=True,
    help="What access is given to.",
)
@click.option("--connection", "place", type=FILE, help="New file for the person, 0600.")
@click.option("--days", type=click.IntRange(1, 3650), default=365, help="Its life.")
@click.option("--key", help="Of a reviewer: his public key, of `review keygen`.")
@click.option(
    "--account",
    "others",
    multiple=True,
    help="Of a reviewer: another account of his; its tasks he cannot review.",
)
@PROPOSAL
@JSON
def add(
    data: Path,
    name: str | None,
    *,
    what: str,
    place: Path | None,
    days: int,
    key: str | None,
    others: tuple[str, ...],
    proposal: Path | None,
    as_json: bool,
) -> None:
    """Give a person access in a connection file, or a service beside the server a key.

    research: the account NAME, made if new, gets one more token. review: it becomes a
    reviewer's. Reviewers of a released project are named in a ceremony: with --proposal
    the account is made here, and the list to sign is written.

    console, operation: a link that opens the server's pages once, within 15 minutes, for
    NAME's tasks, or the operator's pages too. Give it to NAME alone; another one is made
    the same way.

    metrics: a new token that reads `/metrics` and the reasons of `/readyz`, nothing else;
    it is shown once, and the log notes it. mirrors: the key with which HTTP caches fetch
    shared files, the same each time; who has it can read every file that tasks share.
    """
    if what in {"metrics", "mirrors"}:
        made = _service_key(data, what, days)
        say({"key": made}, made, as_json=as_json)
        return
    if what in _SIGNED_IN:
        if name is None:
            raise UsageError("STO-U003", f"access to {what} is given with NAME")
        link = accounts.make_link(data, name, _SIGNED_IN[what], os.environ, now())
        say({"name": name, "link": link}, link, as_json=as_json)
        return
    if name is None or place is None or (what == "review") != (key is not None):
        needed = "NAME, --connection" + (" and --key" if what == "review" else "")
        raise UsageError("STO-U003", f"access to {what} is given with {needed}")
    record = {"name": name, "connection": str(place), "days": days}
    text = f"give {place} to {name}, and to nobody else"
    if key is not None:
        key = key.strip().lower()
        connection = accounts.enroll(data, name, key, others, os.environ, proposal)
        record, text = record | {"key": key}, text + _then(proposal)
    else:
        with _open(data) as store:
            connection = accounts.add_researcher(store, data, name, days * DAY_S, now())
    _write_connection(place, connection)
    say(record, text, as_json=as_json)


def _then(proposal: Path | None) -> str:
    step = f"stoilo release request FOLDER --release DIR --reviewers {proposal}"
    return f"\nit counts once people have signed it: {step}" if proposal else ""


def _service_key(data: Path, service: str, days: int) -> str:
    directory = data / ("keys" if service == "metrics" else "engine")
    if not directory.is_dir():
        raise not_a_data_directory(data)
    if service == "mirrors":
        return load_secret(directory / "mirror.secret").hex()
    with _open(data) as store, store.write() as connection:
        return tokens.issue_token(
            connection,
            "prometheus",
            tokens.Role.OPERATOR,
            now(),
            scope=METRICS_SCOPE,
            lifetime_s=days * DAY_S,
        )


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
@click.option("--reviewer", metavar="KEY", help="A reviewer's public key, instead.")
@PROPOSAL
@JSON
def revoke(
    data: Path,
    name: str | None,
    *,
    token: str | None,
    every: bool,
    leaked: TextIO | None,
    reviewer: str | None,
    proposal: Path | None,
    as_json: bool,
) -> None:
    """Make tokens of the account NAME useless, at once and for good.

    Tasks that were submitted with them go on; the account's other tokens stay good. `up`
    makes the local researcher a new token at its next start. With --reviewer his key is
    taken out of the release: executors that have the new metadata run nothing more on
    the strength of its reviews.
    """
    if reviewer is not None:
        key = reviewer.strip().lower()
        accounts.withdraw(data, key, proposal)
        record = {"key": key, "withdrawn": proposal is None}
        say(record, f"{key[:16]}… withdrawn{_then(proposal)}", as_json=as_json)
        return
    if (name is None) == (leaked is None) or (
        name is not None and bool(token) == every
    ):
        raise UsageError(
            "STO-U003", "name an account with --token or --all, or --leaked"
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

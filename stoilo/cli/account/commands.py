"""`stoilo account`: who may submit to a server or review, how much, and how that ends."""

from __future__ import annotations

import os
from pathlib import Path

import click
import msgspec

from stoilo.cli.account.tokens import (
    DAYS,
    open_accounts,
    show,
    token_group,
    write_connection,
)
from stoilo.cli.output import (
    DATA,
    DAY_S,
    FILE,
    FOLDER,
    JSON,
    cannot_write,
    not_a_data_directory,
    now,
    read_file,
    render_day,
    render_table,
    say,
)
from stoilo.core.errors import UsageError
from stoilo.server.admission import tokens
from stoilo.server.engines.embedded.accounts.accounts import load_secret
from stoilo.server.operations import access, accounts, people
from stoilo.server.watching.watch import METRICS_SCOPE

LIST_BYTES = 256 * 1024
_SIGNED_IN = {"console": tokens.Role.RESEARCHER, "operation": tokens.Role.OPERATOR}
PROPOSAL = click.option(
    "--proposal",
    type=FILE,
    help="Of a released project's reviewer: write the list for the next ceremony here.",
)


@click.group()
def account() -> None:
    """Researchers' and reviewers' accounts of a server, their tokens and quotas.

    With --data a command is the operator's, beside a running server, which looks at every
    call who may make it. `show` and `token` without it are about one's own account, asked
    of the server that --connection names.
    """


account.add_command(show)
account.add_command(token_group)


@account.command("list")
@DATA
@click.option("--reviewers", is_flag=True, help="List whom the release names instead.")
@JSON
def list_accounts(data: Path, *, reviewers: bool, as_json: bool) -> None:
    """List the accounts, with roles, good tokens and open tasks."""
    if reviewers:
        named = access.reviewers_of(data)
        text = "\n".join(f"{one.key}  {one.name}" for one in named)
        say({"reviewers": named}, text, as_json=as_json)
        return
    with open_accounts(data) as store:
        found = accounts.list_accounts(store, now())
    rows: list[tuple[object, ...]] = [
        ("name", "group", "roles", "tokens", "open tasks", "made", "")
    ]
    for one in found:
        ended = f"suspended {render_day(one.suspended_at)} {one.reason}"
        told = ended if one.suspended_at else ""
        made = render_day(one.created_at)
        what = (",".join(one.roles), one.tokens, one.open_tasks, made, told)
        rows.append((one.name, one.group, *what))
    say({"accounts": found}, render_table(rows), as_json=as_json)


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
@DAYS
@click.option("--key", help="Of a reviewer: his public key, of `review keygen`.")
@click.option(
    "--account",
    "others",
    multiple=True,
    help="Of a reviewer: another account of his; its tasks he cannot review.",
)
@click.option(
    "--file", "csv", type=FILE, help="A list: CSV with name, role, group, days."
)
@click.option("--to", "folder", type=FOLDER, help="Of a list: for connection files.")
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
    csv: Path | None,
    folder: Path | None,
    proposal: Path | None,
    as_json: bool,
) -> None:
    """Give people access in connection files, or a service beside the server a key.

    research: the account NAME, made if new, gets one more token. review: it becomes a
    reviewer's. Reviewers of a released project are named in a ceremony: with --proposal
    the account is made here, and the list to sign is written.

    With --file everybody on a list gets access for research, and NAME.json in the folder
    --to. The whole list is checked first; run it again after a change or a fault: who has
    a good file keeps it, roles and groups become the list's.

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
        link = access.make_link(data, name, _SIGNED_IN[what], os.environ, now())
        say({"name": name, "link": link}, link, as_json=as_json)
        return
    if csv is not None and folder is not None and (name, place, key) == (None,) * 3:
        _add_all(data, csv, folder, as_json=as_json)
        return
    if csv or name is None or place is None or (what == "review") != (key is not None):
        needed = "NAME, --connection" + (" and --key" if what == "review" else "")
        needed += ", or --file and --to" * (what == "research")
        raise UsageError("STO-U003", f"access to {what} is given with {needed}")
    record = {"name": name, "connection": str(place), "days": days}
    text = f"give {place} to {name}, and to nobody else"
    if key is not None:
        key = key.strip().lower()
        connection = access.enroll(data, name, key, others, os.environ, proposal)
        record, text = record | {"key": key}, text + _then(proposal)
    else:
        with open_accounts(data) as store:
            connection = access.add_token(store, data, name, days * DAY_S, now())
    write_connection(place, connection)
    say(record, text, as_json=as_json)


def _add_all(data: Path, csv: Path, folder: Path, *, as_json: bool) -> None:
    try:
        listed = people.read_people(read_file(csv, LIST_BYTES).decode())
    except UnicodeDecodeError as error:
        raise UsageError("STO-U004", f"{csv.name} is no UTF-8") from error
    with open_accounts(data) as store:
        try:
            made = people.import_people(store, data, listed, folder, now())
        except OSError as error:
            raise cannot_write(folder, error) from error
    text = (
        f"{len(made)} of {len(listed)} files written to {folder}; each is one person's"
    )
    say({"people": len(listed), "made": made}, text, as_json=as_json)


def _then(proposal: Path | None) -> str:
    step = f"stoilo release request FOLDER --release DIR --reviewers {proposal}"
    return f"\nit counts once people have signed it: {step}" if proposal else ""


def _service_key(data: Path, service: str, days: int) -> str:
    directory = data / ("keys" if service == "metrics" else "engine")
    if not directory.is_dir():
        raise not_a_data_directory(data)
    if service == "mirrors":
        return load_secret(directory / "mirror.secret").hex()
    with open_accounts(data) as store, store.write() as connection:
        return tokens.issue_token(
            connection,
            "prometheus",
            tokens.Role.OPERATOR,
            now(),
            scope=METRICS_SCOPE,
            lifetime_s=days * DAY_S,
        )


@account.command()
@DATA
@click.argument("name", required=False)
@click.argument("role", type=click.Choice(people.ROLES), required=False)
@click.option("--withdraw", metavar="KEY", help="End a reviewer's role, by his key.")
@PROPOSAL
@JSON
def role(
    data: Path,
    name: str | None,
    role: str | None,
    *,
    withdraw: str | None,
    proposal: Path | None,
    as_json: bool,
) -> None:
    """Give the tokens of the account NAME another ROLE; levels and quotas go by it.

    Reviewers are made by `add --for review`. With --withdraw a reviewer's key is taken out
    of the release: executors that have the new metadata run nothing more on the strength
    of its reviews, and its holder's connections and sessions end.
    """
    if withdraw is not None and name is None:
        key = withdraw.strip().lower()
        access.withdraw(data, key, os.environ, proposal)
        record: dict[str, object] = {"key": key, "withdrawn": proposal is None}
        say(record, f"{key[:16]}… withdrawn{_then(proposal)}", as_json=as_json)
        return
    if name is None or role is None or withdraw is not None:
        raise UsageError(
            "STO-U003", "name an account and its role, or --withdraw a key"
        )
    with open_accounts(data) as store:
        count = accounts.change_role(store, name, tokens.Role(role), now())
    record = {"name": name, "role": role, "changed": count}
    say(record, f"{count} tokens changed", as_json=as_json)


AMOUNT = click.IntRange(-1, 2**62)


@account.command()
@DATA
@click.argument("name")
@click.option("--group", is_flag=True, help="NAME is a group: its accounts together.")
@click.option("--open", "open_tasks", type=AMOUNT, help="Tasks that are not final.")
@click.option("--day", "tasks_per_day", type=AMOUNT, help="Tasks of the last 24 hours.")
@click.option("--bytes", "blob_bytes", type=AMOUNT, help="Bytes of uploaded values.")
@click.option("--share", type=click.IntRange(-1, 1000), help="Weight beside others.")
@click.option("--join", metavar="GROUP", help="Put the account into a group; '': none.")
@JSON
def quota(
    data: Path,
    name: str,
    *,
    group: bool,
    join: str | None,
    as_json: bool,
    **given: int | None,
) -> None:
    """Say how much the account NAME, or a group, may use; without options show it.

    -1 takes a number back: what the policy says of the role holds. A number above that has
    no effect. The share says how much of the volunteers' time the group gets, or an account
    that is in none, beside the others that have tasks waiting: 1 unless given.
    """
    if group and join is not None:
        raise UsageError("STO-U003", "--join is of an account")
    changes = {
        key: None if value < 0 else value
        for key, value in given.items()
        if value is not None
    }
    with open_accounts(data) as store:
        if join is not None:
            accounts.join_group(store, name, join, now())
        found = accounts.allow(store, name, changes, now(), group=group)
    record = msgspec.structs.asdict(found)
    said = [f"{key} {value:,}" for key, value in record.items() if value is not None]
    text = "\n".join(said) or "as the policy says"
    say({"name": name, "group": group} | record, text, as_json=as_json)


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
    with open_accounts(data) as store:
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

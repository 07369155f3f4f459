"""`stoilo boinc account` and `hosts`: the volunteers and their computers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import msgspec

from stoilo.cli.output import (
    DATA,
    DAY_S,
    JSON,
    not_a_data_directory,
    now,
    render_table,
    say,
)
from stoilo.core.errors import UsageError
from stoilo.server.config import load_config
from stoilo.server.data_directory import CONNECTION_FILE, ConnectionFile
from stoilo.server.engines.embedded.accounts.account_file import write_account
from stoilo.server.engines.embedded.accounts.roster import Roster, open_roster

UNVERIFIED = (
    "This account was made over the web, by somebody who knows its password: give its key "
    "to nobody before `--new-key`, unless you know that it was the owner."
)
_Columns = Mapping[str, Callable[[Any], object]]


@contextlib.contextmanager
def open_project(data: Path) -> Iterator[Roster]:
    """Yield the people and hosts of a data directory, also beside its server.

    Raises:
        UsageError: ``STO-U004`` for a directory that is none.
    """
    directory = data / "engine"
    if not directory.is_dir():
        raise not_a_data_directory(data)
    config, _ = load_config(data.absolute(), {}, os.environ)
    with contextlib.closing(
        open_roster(directory, config.engine_database_url)
    ) as roster:
        yield roster


def _project_url(data: Path) -> str | None:
    """Return the project's address at its last start, None before the first."""
    try:
        text = (data / CONNECTION_FILE).read_bytes()
        return msgspec.json.decode(text, type=ConnectionFile).project
    except (OSError, msgspec.MsgspecError):
        return None


def _ago(moment: int) -> str:
    """Return how long ago a moment was; a clock that was set back makes it now."""
    return f"{max(0, now() - moment)} s ago"


def _in_columns(found: Sequence[Any], columns: _Columns) -> str:
    rows = [[show(one) for show in columns.values()] for one in found]
    return render_table([list(columns), *rows])


@click.command()
@DATA
@click.option(
    "--email", help="Address of the volunteer; without it, list all accounts."
)
@click.option("--max-level", help="Highest level whose tasks may be sent (pure).")
@click.option(
    "--account-file",
    "folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Write account_*.xml into this data directory of a BOINC client.",
)
@click.option("--url", help="The project's address for its volunteers.")
@click.option(
    "--strong", is_flag=True, help="Print the key that opens the preferences page."
)
@click.option(
    "--new-key",
    is_flag=True,
    help="Make new keys and end the password: old keys stop at once.",
)
@click.option(
    "--trust/--no-trust",
    "trusted",
    default=None,
    help="Let its computers check results of others again, or no longer: your own.",
)
@click.option(
    "--ban/--lift",
    "banned",
    default=None,
    help="Give all its computers no work, or take that back.",
)
@JSON
def account(
    data: Path,
    *,
    email: str | None,
    max_level: str | None,
    folder: Path | None,
    url: str | None,
    strong: bool,
    new_key: bool,
    trusted: bool | None,
    banned: bool | None,
    as_json: bool,
) -> None:
    """Make or find a volunteer's account and print its (weak) key; or list all accounts.

    The weak key fetches and reports work and opens nothing else; it is the one that a
    BOINC client gets. What a volunteer's computer runs is decided there, by its own
    opt-in; the level here only filters what is sent to it.

    An account that was made over the web is unverified: whoever knows its password made
    it. With --new-key it is its owner's alone, if you give the new key to nobody else.
    Clients keep the old key until they attach again or get a new account file.

    What the computers of a trusted account find wrong bans the other one; `hosts --checks`
    lists it. A ban of an account holds for the computers that it will have, too.
    """
    if email is None:
        if trusted is not None or banned is not None:
            raise UsageError("STO-U003", "name the account that is meant: --email")
        _list_accounts(data, as_json=as_json)
        return
    if trusted is not None or banned is not None:
        _judge(data, email, trusted, banned, as_json=as_json)
        return
    with open_project(data) as roster:
        made = roster.accounts.ensure(email, now(), max_level=max_level)
        if new_key:
            made = roster.accounts.take_over(email)
    url = url or _project_url(data)
    file = None
    if folder is not None:
        if url is None:
            raise UsageError(
                "STO-E070",
                "the project's address is not known yet",
                hint="name it with --url, or start the server once",
            )
        file = write_account(folder, url, made.weak_key)
    if not made.verified:  # on stderr: stdout is the key alone, for scripts
        click.echo(UNVERIFIED, err=True)
    # the strong key opens the account's page: printed only when it is asked for by name
    key = made.key if strong else made.weak_key
    place = None if file is None else str(file)
    record = asdict(made) | {"key": key, "url": url, "account_file": place}
    say(record, key, as_json=as_json)


def _judge(
    data: Path, email: str, trusted: bool | None, banned: bool | None, *, as_json: bool
) -> None:
    """Trust or ban an account that is there."""
    done: dict[str, bool] = {}
    with open_project(data) as roster:
        if trusted is not None:
            roster.trust(email, trusted=trusted)
            done["trusted"] = trusted
        if banned is not None:
            roster.ban_account(email, now(), lift=not banned)
            done["banned"] = banned
    text = ", ".join(
        name if yes else f"not {name} any more" for name, yes in done.items()
    )
    say({"email": email, **done}, f"{email}: {text}", as_json=as_json)


def _list_accounts(data: Path, *, as_json: bool) -> None:
    """List the accounts of the project, without keys."""
    with open_project(data) as roster:
        known, trusted = roster.list_accounts(), roster.trusted()
    columns: _Columns = {
        "number": lambda one: one.user_id,
        "e-mail": lambda one: one.email,
        "level": lambda one: one.max_level,
        "hosts": lambda one: one.hosts,
        "credit": lambda one: f"{one.total_credit:.2f}",
        "": lambda one: _standing(one.email in trusted, one.banned, one.verified),
    }
    record = {"accounts": known, "trusted": trusted}
    say(record, _in_columns(known, columns), as_json=as_json)


def _standing(trusted: bool, banned: bool, verified: bool) -> str:
    words = {"trusted": trusted, "banned": banned, "unverified": not verified}
    return ", ".join(word for word, holds in words.items() if holds)


@click.command()
@DATA
@click.option("--email", default="", help="Only the computers of this account.")
@click.option(
    "--ban", type=click.IntRange(min=1), help="Ban the computer of this number."
)
@click.option("--lift", type=click.IntRange(min=1), help="Take its ban back.")
@click.option(
    "--checks",
    "days",
    type=click.IntRange(1),
    help="Instead, list the spot checks that ended within so many days.",
)
@JSON
def hosts(
    data: Path,
    email: str,
    ban: int | None,
    lift: int | None,
    days: int | None,
    as_json: bool,
) -> None:
    """List the computers of the project, as they describe themselves; ban one.

    A banned computer gets no work, and none of its results are looked at. Somebody who
    starts a client anew has a new computer: `account --ban` bans all that he will have.
    """
    if ban is not None and lift is not None:
        raise UsageError("STO-U003", "--ban and --lift exclude each other")
    with open_project(data) as roster:
        if (host := ban or lift) is not None:
            roster.ban_host(host, now(), lift=ban is None)
            said = "banned" if ban is not None else "not banned any more"
            say(
                {"host": host, "banned": ban is not None},
                f"{host}: {said}",
                as_json=as_json,
            )
            return
        known = roster.list_hosts(email=email)
        ended = roster.spot_checks(now() - (days or 0) * DAY_S)
    if days is not None:
        columns: _Columns = {
            "workunit": lambda one: one.workunit,
            "verdict": lambda one: one.verdict.value,
            "ended": lambda one: _ago(one.ended_at),
            "banned computers": lambda one: " ".join(map(str, one.banned)),
            "excused": lambda one: " ".join(map(str, one.excused)),
        }
        say({"checks": ended}, _in_columns(ended, columns), as_json=as_json)
        return
    columns = {
        "number": lambda one: one.host_id,
        "e-mail": lambda one: one.email,
        "name": lambda one: one.domain_name,
        "system": lambda one: one.os_name or one.platform,
        "cpus": lambda one: one.ncpus,
        "credit": lambda one: f"{one.total_credit:.2f}",
        "last call": lambda one: _ago(one.seen_at),
        "": lambda one: "banned" if one.banned else "",
    }
    say({"hosts": known}, _in_columns(known, columns), as_json=as_json)

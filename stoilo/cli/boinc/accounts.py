"""`stoilo boinc account`, `accounts` and `preferences`: the people behind the computers."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TypeVar

import click

from stoilo.cli.boinc.data import (
    DATA,
    JSON,
    echo_found,
    echo_table,
    now,
    open_project,
    project_url,
)
from stoilo.core.errors import UsageError

UNVERIFIED = (
    "This account was made over the web, by somebody who knows its password: give its key "
    "to nobody before `--new-key`, unless you know that it was the owner."
)


@click.command()
@DATA
@click.option("--email", required=True, help="Address of the volunteer.")
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
@JSON
def account(
    data: Path,
    email: str,
    max_level: str | None,
    folder: Path | None,
    url: str | None,
    strong: bool,
    new_key: bool,
    as_json: bool,
) -> None:
    """Make or find a volunteer's account and print its (weak) key.

    The weak key fetches and reports work and opens nothing else; it is the one that a
    BOINC client gets. What a volunteer's computer runs is decided there, by its own
    opt-in; the level here only filters what is sent to it.

    An account that was made over the web is unverified: whoever knows its password made
    it. With --new-key it is its owner's alone, if you give the new key to nobody else.
    Clients keep the old key until they attach again or get a new account file.
    """
    from stoilo.server.engines.embedded.accounts.account_file import write_account  # noqa: PLC0415

    with open_project(data) as roster:
        made = roster.accounts.ensure(email, now(), max_level=max_level)
        if new_key:
            made = roster.accounts.take_over(email)
    url = url or project_url(data)
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
    if not as_json:
        click.echo(key)
        return
    shown = dataclasses.asdict(made) | {
        "key": key,
        "url": url,
        "account_file": None if file is None else str(file),
    }
    click.echo(json.dumps(shown))


@click.command()
@DATA
@JSON
def accounts(data: Path, as_json: bool) -> None:
    """List the accounts of the project, without keys."""
    with open_project(data) as roster:
        known = roster.list_accounts()
    columns = {
        "number": lambda one: one.user_id,
        "e-mail": lambda one: one.email,
        "level": lambda one: one.max_level,
        "hosts": lambda one: one.hosts,
        "credit": lambda one: f"{one.total_credit:.2f}",
        "": lambda one: (
            "banned" if one.banned else "" if one.verified else "unverified"
        ),
    }
    echo_found("accounts", known, columns, as_json=as_json)


_Value = TypeVar("_Value")


@click.command()
@click.argument("email")
@DATA
@click.option("--max-level", help="All levels up to this one.")
@click.option("--level", "levels", multiple=True, help="Only these levels; repeat it.")
@click.option("--require-review/--no-require-review", default=None)
@click.option("--require-public-source/--no-require-public-source", default=None)
@click.option("--topic", "topics", multiple=True, help="Only these topics; repeat it.")
@click.option("--any-topic", is_flag=True, help="Tasks of any topic again.")
@click.option("--name", help="Name that others see.")
@JSON
def preferences(
    email: str,
    *,
    data: Path,
    max_level: str | None,
    levels: tuple[str, ...],
    require_review: bool | None,
    require_public_source: bool | None,
    topics: tuple[str, ...],
    any_topic: bool,
    name: str | None,
    as_json: bool,
) -> None:
    """Show what an account lets the project send, or change what is named.

    It filters on the server and reaches the account's computers, where it can only lower
    what their own opt-in files allow.
    """
    from stoilo.server.engines.embedded.accounts.preferences import (  # noqa: PLC0415
        ProjectPreferences,
        levels_for,
    )

    named = levels_for(max_level) if max_level is not None else levels or None
    about = () if any_topic else topics or None
    with open_project(data) as roster:
        user_id = roster.find_user(email)
        was = roster.load(user_id)
        chosen = ProjectPreferences(
            levels=_or(named, was.levels),
            require_review=_or(require_review, was.require_review),
            require_public_source=_or(require_public_source, was.require_public_source),
            topics=_or(about, was.topics),
            name=_or(name, was.name),
        )
        if chosen != was:
            roster.choose(user_id, chosen)
            chosen = roster.load(user_id)
    fields = dataclasses.asdict(chosen)
    if as_json:
        click.echo(json.dumps(fields | {"max_level": chosen.max_level}))
    else:
        echo_table([(key, _plain(value)) for key, value in fields.items()])


def _or(new: _Value | None, old: _Value) -> _Value:
    return old if new is None else new


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        return " ".join(map(str, value)) or "-"
    return str(value) or "-"

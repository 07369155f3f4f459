"""`stoilo boinc account`: the people behind the computers."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from stoilo.cli.boinc.data import (
    DATA,
    JSON,
    echo_found,
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
@JSON
def account(
    data: Path,
    email: str | None,
    max_level: str | None,
    folder: Path | None,
    url: str | None,
    strong: bool,
    new_key: bool,
    as_json: bool,
) -> None:
    """Make or find a volunteer's account and print its (weak) key; or list all accounts.

    The weak key fetches and reports work and opens nothing else; it is the one that a
    BOINC client gets. What a volunteer's computer runs is decided there, by its own
    opt-in; the level here only filters what is sent to it.

    An account that was made over the web is unverified: whoever knows its password made
    it. With --new-key it is its owner's alone, if you give the new key to nobody else.
    Clients keep the old key until they attach again or get a new account file.
    """
    from stoilo.server.engines.embedded.accounts.account_file import write_account  # noqa: PLC0415

    if email is None:
        _list(data, as_json=as_json)
        return
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


def _list(data: Path, *, as_json: bool) -> None:
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

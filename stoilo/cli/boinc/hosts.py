"""`stoilo boinc hosts`, `ban` and `trust`: the computers of volunteers."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from stoilo.cli.boinc.data import (
    DATA,
    JSON,
    ago,
    echo_found,
    echo_table,
    now,
    open_project,
)
from stoilo.core.errors import UsageError


@click.command()
@DATA
@click.option("--email", default="", help="Only the computers of this account.")
@JSON
def hosts(data: Path, email: str, as_json: bool) -> None:
    """List the computers of the project, as they describe themselves."""
    with open_project(data) as roster:
        known = roster.list_hosts(email=email)
    columns = {
        "number": lambda one: one.host_id,
        "e-mail": lambda one: one.email,
        "name": lambda one: one.domain_name,
        "system": lambda one: one.os_name or one.platform,
        "cpus": lambda one: one.ncpus,
        "credit": lambda one: f"{one.total_credit:.2f}",
        "last call": lambda one: ago(one.seen_at),
        "": lambda one: "banned" if one.banned else "",
    }
    echo_found("hosts", known, columns, as_json=as_json)


@click.command()
@click.argument("host", type=click.IntRange(min=1), required=False)
@DATA
@click.option("--email", help="Ban this account with all its computers.")
@click.option("--lift", is_flag=True, help="Take a ban back.")
def ban(host: int | None, *, data: Path, email: str | None, lift: bool) -> None:
    """Give a computer no work and look at none of its results.

    HOST is a number that `stoilo boinc hosts` shows. Somebody who starts a client anew
    has a new computer: ban the account with --email then.
    """
    if (host is None) == (email is None):
        raise UsageError("STO-U003", "name either one computer or --email")
    with open_project(data) as roster:
        if host is not None:
            roster.ban_host(host, now(), lift=lift)
        elif email is not None:
            roster.ban_account(email, now(), lift=lift)
    click.echo("The ban is lifted." if lift else "Banned.")


@click.command()
@click.argument("email", required=False)
@DATA
@click.option("--no-more", is_flag=True, help="Trust it no longer.")
@click.option(
    "--days",
    type=click.IntRange(1),
    default=30,
    show_default=True,
    help="List the spot checks that ended within so many days.",
)
@JSON
def trust(
    email: str | None, *, data: Path, no_more: bool, days: int, as_json: bool
) -> None:
    """Let the computers of an account check results of others again.

    For the operator's own computers: what they find wrong bans the other one. Without
    EMAIL, list the accounts that are trusted, and what their computers have found.
    """
    if email is None and no_more:
        raise UsageError("STO-U003", "name the account that is not trusted any more")
    with open_project(data) as roster:
        if email is not None:
            roster.trust(email, trusted=not no_more)
        known = roster.trusted()
        ended = roster.spot_checks(now() - days * 86_400)
    if as_json:
        found = [dataclasses.asdict(one) for one in ended]
        click.echo(json.dumps({"trusted": known, "checks": found}))
    elif email is not None:
        click.echo("Not trusted any more." if no_more else "Trusted.")
    else:
        echo_table([("e-mail",), *((one,) for one in known)])
        columns = {
            "workunit": lambda one: one.workunit,
            "verdict": lambda one: one.verdict.value,
            "ended": lambda one: ago(one.ended_at),
            "banned computers": lambda one: " ".join(map(str, one.banned)),
            "excused": lambda one: " ".join(map(str, one.excused)),
        }
        echo_found("checks", ended, columns, as_json=False)

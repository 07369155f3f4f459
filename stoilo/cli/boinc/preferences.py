"""`stoilo boinc preferences`: what an account lets the project send."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, TypeVar

import click

from stoilo.cli.boinc.data import DATA, JSON, echo_table, now, open_project

if TYPE_CHECKING:
    from pathlib import Path


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
@click.option("--venue", help="BOINC's location: home, work, school, or empty.")
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
    venue: str | None,
    name: str | None,
    as_json: bool,
) -> None:
    """Show what an account lets the project send, or change what is named.

    It filters on the server and reaches the account's computers, where it can only lower
    what their own opt-in files allow.
    """
    from stoilo.server.engines.embedded.accounts.preferences import (  # noqa: PLC0415
        Person,
        ProjectPreferences,
        levels_for,
    )

    named = levels_for(max_level) if max_level is not None else levels or None
    about = () if any_topic else topics or None
    with open_project(data) as roster:
        user_id = roster.find_user(email)
        was, who = roster.load(user_id)
        chosen = ProjectPreferences(
            levels=_or(named, was.levels),
            require_review=_or(require_review, was.require_review),
            require_public_source=_or(require_public_source, was.require_public_source),
            topics=_or(about, was.topics),
        )
        person = Person(
            name=_or(name, who.name),
            venue=_or(venue, who.venue),
        )
        if (chosen, person) != (was, who):
            roster.choose(user_id, chosen, person, now())
            chosen, person = roster.load(user_id)
    fields = dataclasses.asdict(chosen) | dataclasses.asdict(person)
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

"""What a volunteer chose and is called: levels, reviewed only, topics; name and venue.

A choice here filters what is sent, and travels to every host of the account inside
``<project_preferences>``, where the verifier reads it and can only lower its own opt-in
by it (I4): whoever writes here, the project's operator and a thief included, takes work
away from a host and never allows it more. Nothing chosen means nothing above `pure`; in
BOINC it would mean everything (reference/boinc.md §3.7).
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from sqlalchemy import delete, exists, insert, or_, select, update

from stoilo.core.boinc.messages import MOST_TOPICS, TOPIC
from stoilo.core.boinc.xml import escape
from stoilo.core.errors import UsageError
from stoilo.server.engines.embedded.accounts.host_filter import (
    LEVELS,
    app_id,
    join_words,
    levels_up_to,
)
from stoilo.server.engines.embedded.db import schema

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection

    from stoilo.core.boinc.messages import Wishes
    from stoilo.server.engines.embedded.db.schema import AnyRow

NAME_CHARS: Final = 60
# BOINC's places of a computer; empty: none
VENUES: Final = ("", "home", "work", "school")


@dataclass(frozen=True, slots=True)
class Person:
    """What is shown of a volunteer."""

    name: str = ""  # chosen by them, empty for none
    venue: str = ""  # one of `VENUES`


def check_name(name: str) -> str:
    """Return an (untrusted) name in the one form that is stored.

    Raises:
        UsageError: ``STO-E064`` for one that is too long, holds control or invisible
            characters or markup, or looks like an address (names are public).
    """
    text = " ".join(unicodedata.normalize("NFC", name[: 8 * NAME_CHARS]).split())
    hidden = any(unicodedata.category(one)[0] == "C" for one in text)
    if len(text) > NAME_CHARS or hidden or set(text) & set("<>&@\"'"):
        raise UsageError(
            "STO-E064",
            "this name cannot be used",
            hint=f"at most {NAME_CHARS} visible characters, without < > & @ and quotes",
        )
    return text


def ensure_person(connection: Connection, user_id: int) -> None:
    """Make the row of a person unless there is one."""
    table = schema.people
    known = select(table.c.user_id).where(table.c.user_id == user_id)
    if connection.scalar(known) is None:
        connection.execute(
            insert(table).values(user_id=user_id, export_id="")  # of no use any more
        )


def load_person(connection: Connection, user_id: int) -> Person:
    """Return what is shown of a user."""
    table = schema.people
    row = connection.execute(select(table).where(table.c.user_id == user_id)).first()
    return Person() if row is None else Person(row.name, row.venue)


def save_person(connection: Connection, user_id: int, person: Person) -> None:
    """Store what is shown of a user; raises ``STO-E064`` or ``STO-E060``."""
    if person.venue not in VENUES:
        raise UsageError("STO-E060", f"there is no place {person.venue[:16]!r}")
    ensure_person(connection, user_id)
    table = schema.people
    connection.execute(
        update(table)
        .where(table.c.user_id == user_id)
        .values(name=check_name(person.name), venue=person.venue)
    )


# A topic that no task can carry (`TOPIC` does not match it)
NO_TOPIC: Final = ";"


@dataclass(frozen=True, slots=True)
class ProjectPreferences:
    """A volunteer's choices for all computers of the account."""

    levels: tuple[str, ...] = ()  # apps to be sent; empty means `pure` alone
    require_review: bool = False  # only tasks that a reviewer signed
    require_public_source: bool = False  # only tasks whose source may be published
    topics: tuple[str, ...] = ()  # when not empty, only tasks that carry one of these

    @property
    def max_level(self) -> str:
        """The highest level chosen."""
        return max(self.levels, key=LEVELS.index, default=LEVELS[0])


def check_preferences(chosen: ProjectPreferences) -> ProjectPreferences:
    """Return (untrusted) choices in the one form that is stored; raises ``STO-E060``."""
    for level in chosen.levels:
        if level not in LEVELS:
            raise UsageError(
                "STO-E060",
                f"there is no level {level[:32]!r}",
                hint="levels are " + ", ".join(LEVELS),
            )
    topics = tuple(sorted(set(chosen.topics)))
    if len(topics) > MOST_TOPICS or not all(map(TOPIC.fullmatch, topics)):
        raise UsageError(
            "STO-E060",
            "these topics cannot be used",
            hint=f"at most {MOST_TOPICS}, each of letters, digits and _ . / + -",
        )
    levels = tuple(level for level in LEVELS if level in chosen.levels)
    return replace(chosen, levels=levels, topics=topics)


def is_selected(app: str) -> ColumnElement[bool]:
    """Return the condition that a row of `users` has not left out an app."""
    table, users = schema.preferences, schema.users
    own = exists().where(table.c.user_id == users.c.id)
    named = table.c.levels.contains(f",{app},", autoescape=True)
    if app == LEVELS[0]:
        named = or_(named, table.c.levels == "")
    return or_(~own, own.where(named))


def levels_for(max_level: str) -> tuple[str, ...]:
    """Return all levels up to and with one; raises ``STO-E060`` for an unknown one."""
    return levels_up_to(check_preferences(ProjectPreferences((max_level,))).max_level)


def selected_levels(
    max_level: str,  # the account's level
    selection: str | None,  # column ``levels``; None where the volunteer never chose
) -> tuple[str, ...]:
    """Return which levels may be sent: the stored selection within the account's level."""
    allowed = levels_up_to(max_level)
    if selection is None:
        return allowed
    chosen = set(selection.split(","))
    return tuple(level for level in allowed if level in chosen) or LEVELS[:1]


def load_preferences(connection: Connection, user_id: int) -> ProjectPreferences:
    """Return what holds for a user, chosen or not."""
    users, table = schema.users, schema.preferences
    row = connection.execute(
        select(users.c.max_level, table)
        .outerjoin(table, table.c.user_id == users.c.id)
        .where(users.c.id == user_id)
    ).one()
    return preferences_of(row)


def preferences_of(row: AnyRow) -> ProjectPreferences:
    """Return what a row says: a user's level and preferences, NULL if none were chosen."""
    levels = selected_levels(row.max_level, row.levels)
    if row.levels is None:
        return ProjectPreferences(levels)
    topics = tuple(topic for topic in row.topics.split(",") if topic)
    return ProjectPreferences(
        levels, bool(row.require_review), bool(row.require_public_source), topics
    )


def save_preferences(
    connection: Connection, user_id: int, chosen: ProjectPreferences, now: int
) -> ProjectPreferences:
    """Store a user's choices and return them as stored; raises ``STO-E060``."""
    checked = check_preferences(chosen)
    table = schema.preferences
    connection.execute(delete(table).where(table.c.user_id == user_id))
    connection.execute(
        insert(table).values(
            user_id=user_id,
            levels=join_words(checked.levels),
            require_review=int(checked.require_review),
            require_public_source=int(checked.require_public_source),
            topics=join_words(checked.topics),
            modified_at=now,
        )
    )
    connection.execute(
        update(schema.users)
        .where(schema.users.c.id == user_id)
        .values(max_level=checked.max_level)
    )
    return checked


def allow_levels(connection: Connection, user_id: int, max_level: str) -> None:
    """Choose all levels up to one for a user, other choices left as they are."""
    users, table = schema.users, schema.preferences
    connection.execute(
        update(users).where(users.c.id == user_id).values(max_level=max_level)
    )
    connection.execute(
        update(table)
        .where(table.c.user_id == user_id)
        .values(levels=join_words(levels_up_to(max_level)))
    )


def project_preferences(chosen: ProjectPreferences) -> str:
    """Return the elements inside ``<project_preferences>`` of a reply.

    What stands in ``<project_specific>`` is all that reaches a task's slot.
    """
    levels = chosen.levels or LEVELS[:1]
    review, public = int(chosen.require_review), int(chosen.require_public_source)
    lines = [f"<app_id>{app_id(level)}</app_id>" for level in levels]
    lines += [
        f"<max_level>{chosen.max_level}</max_level>",
        f"<require_review>{review}</require_review>",
        f"<require_public_source>{public}</require_public_source>",
    ]
    lines += [f"<topic>{escape(topic)}</topic>" for topic in chosen.topics]
    inner = "\n".join(lines)
    return f"<project_specific>\n{inner}\n</project_specific>\n"


def narrow_wishes(wishes: Wishes, chosen: ProjectPreferences) -> Wishes:
    """Return what neither the host nor its account wants left out; each takes away.

    Levels are not looked at here: the account's are the user's apps already.
    """
    topics = wishes.topics or chosen.topics
    if wishes.topics and chosen.topics:
        both = sorted(set(wishes.topics) & set(chosen.topics))
        topics = tuple(both) or (NO_TOPIC,)
    return replace(
        wishes,
        require_review=wishes.require_review or chosen.require_review,
        require_public_source=(
            wishes.require_public_source or chosen.require_public_source
        ),
        topics=topics,
    )

"""What an account is besides its key: a name to show, a venue, a consent to be shown."""

from __future__ import annotations

import secrets
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy import insert, select, update

from stoilo.core.errors import UsageError
from stoilo.server.engines.embedded import schema

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = [
    "NAME_CHARS",
    "VENUES",
    "Person",
    "check_name",
    "ensure_person",
    "load_person",
    "save_person",
    "shown_name",
]

NAME_CHARS: Final = 60
VENUES: Final = ("", "home", "work", "school")
"""BOINC's places of a computer; empty: none."""


@dataclass(frozen=True, slots=True)
class Person:
    """What is shown of a volunteer.

    Attributes:
        name: chosen by them, empty for none.
        venue: one of `VENUES`.
        exported: whether they agreed to appear in the public statistics.
    """

    name: str = ""
    venue: str = ""
    exported: bool = False


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


def shown_name(user_id: int, name: str) -> str:
    """Return how a volunteer is called where others can see it."""
    return name or f"volunteer {user_id}"


def ensure_person(connection: Connection, user_id: int) -> None:
    """Make the row of a person unless there is one."""
    table = schema.people
    known = select(table.c.user_id).where(table.c.user_id == user_id)
    if connection.scalar(known) is None:
        connection.execute(
            insert(table).values(user_id=user_id, export_id=secrets.token_hex(16))
        )


def load_person(connection: Connection, user_id: int) -> Person:
    """Return what is shown of a user."""
    table = schema.people
    row = connection.execute(select(table).where(table.c.user_id == user_id)).first()
    return Person() if row is None else Person(row.name, row.venue, bool(row.exported))


def save_person(connection: Connection, user_id: int, person: Person) -> None:
    """Store what is shown of a user; raises ``STO-E064`` or ``STO-E060``."""
    if person.venue not in VENUES:
        raise UsageError("STO-E060", f"there is no place {person.venue[:16]!r}")
    ensure_person(connection, user_id)
    table = schema.people
    connection.execute(
        update(table)
        .where(table.c.user_id == user_id)
        .values(
            name=check_name(person.name),
            venue=person.venue,
            exported=int(person.exported),
        )
    )

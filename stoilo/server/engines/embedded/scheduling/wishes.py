"""Filtering by a host's opt-in before anything is sent (design §4).

A host may say what it would refuse. Its word can only take away: what the account's level
does not allow is not sent either, and the executor refuses by its own file whatever comes.
Here the two sides meet in SQL: offers of workunits, wishes of hosts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import and_, delete, exists, insert, or_, select

from stoilo.core.boinc.messages import Wishes
from stoilo.server.engines.embedded import schema
from stoilo.server.engines.embedded.database import must_write
from stoilo.server.engines.embedded.people.accounts import LEVELS
from stoilo.server.engines.embedded.scheduling.visitors import WISH_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Connection

    from stoilo.server.engines.embedded.scheduling.hosts import Host
    from stoilo.server.engines.interface import WorkunitSpec

__all__ = [
    "Offer",
    "allowed_apps",
    "is_wanted",
    "load_offer",
    "offer_rows",
    "remember_wishes",
    "would_refuse",
]


@dataclass(frozen=True, slots=True)
class Offer:
    """What a workunit is besides its level.

    Attributes:
        reviewed: whether a reviewer has signed it.
        public_source: whether its source may be published.
        topics: what it is about.
    """

    reviewed: bool = False
    public_source: bool = False
    topics: tuple[str, ...] = ()


def allowed_apps(apps: Sequence[str], wishes: Wishes) -> tuple[str, ...]:
    """Return the apps of an account that the host wants; an unknown level is `pure`."""
    if not wishes.max_level:
        return tuple(apps)
    known = wishes.max_level in LEVELS
    place = LEVELS.index(wishes.max_level) if known else 0
    return tuple(app for app in apps if app in LEVELS[: place + 1])


def offer_rows(
    specs: Sequence[WorkunitSpec], row_of: dict[str, int]
) -> list[dict[str, object]]:
    """Return the rows of workunits that are not ordinary."""
    return [
        {
            "workunit_id": row_of[spec.name],
            "reviewed": int(spec.reviewed),
            "public_source": int(spec.public_source),
            "topics": _join(spec.topics),
        }
        for spec in specs
        if spec.reviewed or spec.public_source or spec.topics
    ]


def load_offer(connection: Connection, workunit_id: int) -> Offer:
    """Return what a workunit is."""
    table = schema.offers
    row = connection.execute(
        select(table).where(table.c.workunit_id == workunit_id)
    ).first()
    if row is None:
        return Offer()
    topics = tuple(topic for topic in row.topics.split(",") if topic)
    return Offer(bool(row.reviewed), bool(row.public_source), topics)


def remember_wishes(connection: Connection, host: Host, wishes: Wishes) -> None:
    """Store a host's wishes where they differ from those it had."""
    stored = host.known.wishes if host.known else None
    wanted = (
        wishes.max_level,
        int(wishes.require_review),
        int(wishes.require_public_source),
        _join(wishes.topics),
    )
    if stored == (wanted if wishes != Wishes() else None):
        return
    must_write(connection)
    table = schema.wishes
    if stored is not None:
        connection.execute(delete(table).where(table.c.host_id == host.id))
    if wishes != Wishes():
        row = dict(zip(WISH_COLUMNS, wanted, strict=True))
        connection.execute(insert(table).values(host_id=host.id, **row))


def is_wanted(wishes: Wishes) -> ColumnElement[bool]:
    """Return the condition that a row of `workunits` is what the host takes."""
    needed: list[ColumnElement[bool]] = []
    table = schema.offers
    if wishes.require_review:
        needed.append(table.c.reviewed == 1)
    if wishes.require_public_source:
        needed.append(table.c.public_source == 1)
    if wishes.topics:
        needed.append(or_(*(_holds(table.c.topics, one) for one in wishes.topics)))
    if not needed:
        return schema.workunits.c.id.is_not(None)
    return exists().where(table.c.workunit_id == schema.workunits.c.id, *needed)


def would_refuse(app: str, offer: Offer) -> ColumnElement[bool]:
    """Return the condition that a row of `hosts` has asked not to be sent this."""
    table = schema.wishes
    levels = LEVELS[LEVELS.index(app) :] if app in LEVELS else ()
    reasons: list[ColumnElement[bool]] = [
        and_(table.c.max_level != "", table.c.max_level.not_in(levels))
    ]
    if not offer.reviewed:
        reasons.append(table.c.require_review == 1)
    if not offer.public_source:
        reasons.append(table.c.require_public_source == 1)
    named = [_holds(table.c.topics, topic) for topic in offer.topics]
    other = ~or_(*named) if named else table.c.topics != ""
    reasons.append(and_(table.c.topics != "", other))
    return exists().where(table.c.host_id == schema.hosts.c.id, or_(*reasons))


def _join(topics: Sequence[str]) -> str:
    return f",{','.join(topics)}," if topics else ""


def _holds(column: ColumnElement[str], topic: str) -> ColumnElement[bool]:
    return column.contains(f",{topic},", autoescape=True)

"""Which workunits a host may be sent: its opt-in (design §4), its memory, its disk.

A host may say what it would refuse. Its word can only take away: what the account's level
does not allow is not sent either, and the executor refuses by its own file whatever comes.
Here the two sides meet in SQL: offers and bounds of workunits, wishes of hosts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy import and_, bindparam, delete, exists, insert, or_, select, true

from stoilo.core.boinc.messages import Wishes
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.database import must_write

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import ColumnElement, Connection

    from stoilo.server.engines.workunits import WorkunitSpec

LEVELS: Final = ("pure", "numeric", "tensor", "gpu")


def levels_up_to(level: str) -> tuple[str, ...]:
    """Return the levels up to and with one; an unknown one is the lowest."""
    place = LEVELS.index(level) if level in LEVELS else 0
    return LEVELS[: place + 1]


def app_id(level: str) -> int:
    """Return BOINC's number of the level's app."""
    return LEVELS.index(level) + 1


WISH_COLUMNS: Final = ("max_level", "require_review", "require_public_source", "topics")


@dataclass(frozen=True, slots=True)
class Offer:
    """What a workunit is besides its level."""

    reviewed: bool = False  # whether a reviewer has signed it
    public_source: bool = False  # whether its source may be published
    topics: tuple[str, ...] = ()  # what it is about


def allowed_apps(apps: Sequence[str], wishes: Wishes) -> tuple[str, ...]:
    """Return the apps of an account that the host wants; an unknown level is `pure`."""
    if not wishes.max_level:
        return tuple(apps)
    return tuple(app for app in apps if app in levels_up_to(wishes.max_level))


def offer_rows(
    specs: Sequence[WorkunitSpec], row_of: dict[str, int]
) -> list[dict[str, object]]:
    """Return the rows of workunits that are not ordinary."""
    return [
        {
            "workunit_id": row_of[spec.name],
            "reviewed": int(spec.reviewed),
            "public_source": int(spec.public_source),
            "topics": join_words(spec.topics),
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


def remember_wishes(
    connection: Connection,
    host_id: int,
    stored: tuple[object, ...] | None,
    wishes: Wishes,
) -> None:
    """Store a host's wishes where they differ from those `stored` (`WISH_COLUMNS`)."""
    wanted = (
        wishes.max_level,
        int(wishes.require_review),
        int(wishes.require_public_source),
        join_words(wishes.topics),
    )
    if stored == (wanted if wishes != Wishes() else None):
        return
    must_write(connection)
    table = schema.wishes
    if stored is not None:
        connection.execute(delete(table).where(table.c.host_id == host_id))
    if wishes != Wishes():
        row = dict(zip(WISH_COLUMNS, wanted, strict=True))
        connection.execute(insert(table).values(host_id=host_id, **row))


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


def join_words(words: Sequence[str]) -> str:
    """Return words as one column holds them: each between two commas."""
    return f",{','.join(words)}," if words else ""


def _holds(column: ColumnElement[str], topic: str) -> ColumnElement[bool]:
    return column.contains(f",{topic},", autoescape=True)


@dataclass(frozen=True, slots=True)
class HostBounds:
    """BOINC's ``rsc_memory_bound`` and ``rsc_disk_bound``, bytes; 0: not said."""

    memory_bytes: int = 0
    disk_bytes: int = 0


def bound_rows(
    specs: Iterable[WorkunitSpec], row_of: Mapping[str, int]
) -> list[dict[str, object]]:
    """Return rows for the workunits that say what they need."""
    return [
        {
            "workunit_id": row_of[spec.name],
            "memory_bytes": spec.memory_bound,
            "disk_bytes": spec.disk_bound,
        }
        for spec in specs
        if spec.memory_bound or spec.disk_bound
    ]


def fits_host(
    *,
    memory: bool,  # whether it says how much it has, bytes, parameter :memory
    disk: bool,  # the same of what is free on its disk, :disk
) -> ColumnElement[bool]:
    """Return the condition for workunits, with bounds, that a host says it has room for.

    What a host does not say does not count against it: it refuses by itself.
    """
    table = schema.bounds
    too_large = []
    if memory:
        too_large.append(table.c.memory_bytes > bindparam("memory"))
    if disk:
        too_large.append(table.c.disk_bytes > bindparam("disk"))
    return ~or_(*too_large) | table.c.workunit_id.is_(None) if too_large else true()

"""Which workunits a host may be sent: its opt-in (design §4), its memory, its disk.

A host may say what it would refuse. Its word can only take away: what the account's level
does not allow is not sent either, and the executor refuses by its own file whatever comes.
Here the two sides meet in SQL: what workunits are, and what hosts wish.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import and_, bindparam, or_, true, update

from stoilo.core.boinc.messages import Wishes
from stoilo.core.errors import UsageError
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.database import must_write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Connection

    from stoilo.server.engines.embedded.db.schema import AnyRow

# Of `hosts`: what it would refuse
WISH_COLUMNS: Final = ("max_level", "require_review", "require_public_source", "topics")
NO_WISHES: Final[tuple[object, ...]] = ("", 0, 0, "")
LEVELS: Final = ("pure", "numeric", "tensor", "gpu")


def levels_up_to(level: str) -> tuple[str, ...]:
    """Return the levels up to and with one; an unknown one is the lowest."""
    place = LEVELS.index(level) if level in LEVELS else 0
    return LEVELS[: place + 1]


def check_level(level: str) -> str:
    """Return a level that exists, or raise ``STO-E015``."""
    if level not in LEVELS:
        raise UsageError(
            "STO-E015",
            f"there is no level {level[:32]!r}",
            hint="levels are " + ", ".join(LEVELS),
        )
    return level


def join_words(words: Sequence[str]) -> str:
    """Return words as one column holds them: each between two commas."""
    return f",{','.join(words)}," if words else ""


def split_words(text: str) -> tuple[str, ...]:
    """Return the words of such a column."""
    return tuple(word for word in text.split(",") if word)


def holds(column: ColumnElement[str], word: str) -> ColumnElement[bool]:
    """Return the condition that such a column holds a word."""
    return column.contains(f",{word},", autoescape=True)


def allowed_apps(apps: Sequence[str], wishes: Wishes) -> tuple[str, ...]:
    """Return the apps of an account that the host wants; an unknown level is `pure`."""
    if not wishes.max_level:
        return tuple(apps)
    return tuple(app for app in apps if app in levels_up_to(wishes.max_level))


def remember_wishes(
    connection: Connection,
    host_id: int,
    stored: tuple[object, ...],  # in the order of `WISH_COLUMNS`
    wishes: Wishes,
) -> None:
    """Store a host's wishes where they differ from those `stored`."""
    wanted = (
        wishes.max_level,
        int(wishes.require_review),
        int(wishes.require_public_source),
        join_words(wishes.topics),
    )
    if stored == wanted:
        return
    must_write(connection)
    table = schema.hosts
    row = dict(zip(WISH_COLUMNS, wanted, strict=True))
    connection.execute(update(table).where(table.c.id == host_id).values(row))


def is_wanted(wishes: Wishes) -> ColumnElement[bool]:
    """Return the condition that a row of `workunits` is what the host takes."""
    table = schema.workunits
    needed: list[ColumnElement[bool]] = [true()]
    if wishes.require_review:
        needed.append(table.c.reviewed == 1)
    if wishes.require_public_source:
        needed.append(table.c.public_source == 1)
    if wishes.topics:
        needed.append(or_(*(holds(table.c.topics, one) for one in wishes.topics)))
    return and_(*needed)


def would_take(workunit: AnyRow) -> ColumnElement[bool]:
    """Return the condition that a row of `hosts` has not asked not to be sent this."""
    table, app = schema.hosts, workunit.app
    levels = LEVELS[LEVELS.index(app) :] if app in LEVELS else ()
    named = [holds(table.c.topics, topic) for topic in split_words(workunit.topics)]
    needed = [table.c.max_level.in_(["", *levels]), or_(table.c.topics == "", *named)]
    if not workunit.reviewed:
        needed.append(table.c.require_review == 0)
    if not workunit.public_source:
        needed.append(table.c.require_public_source == 0)
    return and_(*needed)


def fits_host(
    *,
    memory: bool,  # whether it says how much it has, bytes, parameter :memory
    disk: bool,  # the same of what is free on its disk, :disk
) -> ColumnElement[bool]:
    """Return the condition for workunits that a host says it has room for.

    What a host does not say does not count against it: it refuses by itself.
    """
    table = schema.workunits
    fits: list[ColumnElement[bool]] = [true()]
    if memory:
        fits.append(table.c.memory_bound <= bindparam("memory"))
    if disk:
        fits.append(table.c.disk_bound <= bindparam("disk"))
    return and_(*fits)

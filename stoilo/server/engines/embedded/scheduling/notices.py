"""What people are told when their computer gets no work, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select

from stoilo.server.engines.embedded import schema
from stoilo.server.engines.embedded.people.accounts import LEVELS
from stoilo.server.engines.embedded.scheduling.wishes import allowed_apps
from stoilo.server.engines.interface import CopyState

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from stoilo.core.boinc.messages import SchedulerRequest
    from stoilo.server.engines.embedded.people.accounts import User

__all__ = ["level_notice"]

FIRST_CALLS = 3
EVERY_CALLS = 100


def level_notice(
    connection: Connection, user: User, request: SchedulerRequest
) -> tuple[str, ...]:
    """Return the notice that all work there is needs levels which are not allowed.

    A client shows each notice again, so that only its first calls and then every
    hundredth bring one.
    """
    if request.rpc_seqno > FIRST_CALLS and request.rpc_seqno % EVERY_CALLS:
        return ()
    copies, table = schema.copies, schema.workunits
    waiting = set(
        connection.scalars(
            select(table.c.app)
            .join(copies, copies.c.workunit_id == table.c.id)
            .where(copies.c.state == CopyState.UNSENT.value, table.c.outcome.is_(None))
            .distinct()
        )
    )
    allowed = set(allowed_apps(user.apps, request.wishes))
    if not waiting or waiting & allowed:
        return ()
    levels = ", ".join(level for level in LEVELS if level in waiting)
    notice = (
        f"All work of this project needs a level that you do not allow ({levels}). "
        "Nothing is wrong; you may allow it in your preferences for this project."
    )
    return (notice,)

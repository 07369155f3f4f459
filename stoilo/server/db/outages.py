"""Which failures of a database pass by themselves, and how they are told: in one place.

A MariaDB that is being started anew, a lock that another process holds: nothing is lost
and nothing is stored half, and the same call works a moment later. Callers hear so
(``STO-R112``, which gRPC calls *unavailable*) and ask again; threads of the server leave
everything as it is and go on by themselves. A full disk or a broken file is not of this
kind: somebody has to mend it.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from sqlalchemy import exc

from stoilo.core.errors import InternalError

AWAY: Final = "STO-R112"

_SQLITE_PASSING: Final = frozenset(
    {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
)
"""Primary codes: another connection holds a lock."""

_MARIADB_PASSING: Final = frozenset(
    {
        # the driver's: it cannot connect, or the connection is lost
        *(2002, 2003, 2005, 2006, 2012, 2013, 2014, 2026, 2055),
        # too many connections, of all or of this account
        *(1040, 1203, 1226),
        # being shut down; a connection or a query ended by somebody, or by the network
        *(1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1317, 1927, 1969, 4031),
        # another transaction: a lock, a deadlock, a row that has changed
        *(1020, 1205, 1213),
        # for a while it only reads: a backup, a replica that is being promoted
        *(1290, 1836),
    }
)
"""Numbers of errors, as MariaDB's documentation lists them."""


_SHOWN: Final = 160


class DatabaseAwayError(InternalError):
    """A database that does not answer just now (``STO-R112``); nothing is stored half."""

    def __init__(self) -> None:
        super().__init__(
            AWAY,
            "the server's database does not answer just now",
            hint="nothing is lost: the same call works when it is back, and clients "
            "repeat it by themselves",
        )


def is_passing(error: exc.SQLAlchemyError) -> bool:
    """Say whether the same work may succeed a moment later, without anybody's doing."""
    if isinstance(error, (exc.TimeoutError, exc.PendingRollbackError)):
        return True  # no connection came free; the one in use was lost before
    if not isinstance(error, exc.DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    cause = error.orig
    if isinstance(cause, sqlite3.Error):
        return getattr(cause, "sqlite_errorcode", 0) & 0xFF in _SQLITE_PASSING
    number = cause.args[0] if cause is not None and cause.args else None
    return number in _MARIADB_PASSING


def cause_of(error: exc.SQLAlchemyError) -> str:
    """Return what the database itself said, one bounded line without our SQL."""
    said = str(getattr(error, "orig", None) or type(error).__name__)
    return " ".join(said.split())[:_SHOWN]


def database_error(error: exc.SQLAlchemyError, lasting: InternalError) -> InternalError:
    """Return our error for a database's: `lasting` unless it passes by itself."""
    return DatabaseAwayError() if is_passing(error) else lasting

"""An engine's database: how its refusals are told, and its column types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import BigInteger, Float, Integer, String
from sqlalchemy.dialects import mysql

from stoilo.core.errors import InternalError
from stoilo.server.db.mariadb import PACKET_BYTES
from stoilo.server.db.store import Store, database_error

if TYPE_CHECKING:
    from sqlalchemy.exc import SQLAlchemyError

    from stoilo.server.migrations import Branch


class EngineDatabase(Store):
    """An engine's tables; ``STO-R030`` when the database refuses."""

    def __init__(
        self, url: str, branch: Branch, packet_bytes: int = PACKET_BYTES
    ) -> None:
        super().__init__(url, branch, _refused, packet_bytes)


def _refused(error: SQLAlchemyError) -> InternalError:
    """Return our error for a database's; only the kind is told, never the SQL."""
    kind = type(error).__name__
    lasting = InternalError("STO-R030", f"the engine's database refused ({kind})")
    return database_error(error, lasting)


APP_CHARS: Final = 32
NAME_CHARS: Final = 160
# SQLite numbers rows by itself only for INTEGER keys; MariaDB shall have 64 bits.
Key = BigInteger().with_variant(Integer(), "sqlite")
# Names compare byte by byte everywhere; MariaDB's default collation would fold case.
Name = String(NAME_CHARS).with_variant(
    mysql.VARCHAR(NAME_CHARS, charset="ascii", collation="ascii_bin"),
    "mysql",
    "mariadb",
)
# MariaDB's FLOAT has 24 bits.
Real = Float().with_variant(mysql.DOUBLE(asdecimal=False), "mysql", "mariadb")

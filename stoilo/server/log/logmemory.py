"""What others remember of the log, compared with the log itself at every start (I1).

The log's own parts check each other (`stoilo.audit.log.startup`), but where all of them are
gone together an empty log looks like a new one. The signer remembers the newest size
that it signed and the server's database the indices that were acknowledged to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import func, select

from stoilo.core.errors import TrustError
from stoilo.server.db import schema

if TYPE_CHECKING:
    from stoilo.server.db.store import Store

__all__ = ["check_log_size"]


def check_log_size(size: int, signed: int, store: Store) -> None:
    """Refuse a log that holds less than the signer or the database have seen.

    Args:
        size: leaves that the log holds.
        signed: size of the newest checkpoint that the signer signed.
        store: where the indices of admissions and events are noted.

    Raises:
        TrustError: ``STO-L045``.
    """
    with store.read() as connection:
        noted = [
            connection.scalar(select(func.max(table.c.log_index)))
            for table in (schema.attempt, schema.event)
        ]
    known = max([signed, *(index + 1 for index in noted if index is not None)])
    if size < known:
        raise TrustError(
            "STO-L045",
            f"the log holds {size} leaves, but {known} were signed or acknowledged: "
            "it was lost or replaced",
            hint="restore audit/ and audit-head/ from the newest backup",
        )

"""Where a server's tables lie: SQLite files in its directory, or a MariaDB.

The log's databases are always SQLite files: its sequencer rests on a flushed commit in
each of two files on (best) two disks, and on a compare-and-swap between them. One MariaDB
would be one place, with one backup that could take both back in time together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoilo.core.errors import UsageError
from stoilo.server.db.mariadb import is_mariadb

if TYPE_CHECKING:
    from stoilo.server.config import ServerConfig

__all__ = ["engine_url"]


def engine_url(config: ServerConfig) -> str:
    """Return the URL of the engine's tables.

    Raises:
        UsageError: ``STO-B062`` where a MariaDB would begin empty beside the SQLite file
            that this project has used so far: its hosts and running work would be gone.
    """
    url = config.engine_database_url
    file = config.data / "engine" / "engine.sqlite"
    if not config.engine_database and is_mariadb(url) and file.exists():
        raise UsageError(
            "STO-B062",
            "workunits and volunteers' accounts lie in engine/engine.sqlite, not in "
            "the database of the settings",
            hint=f'keep them there with engine_database = "sqlite:///{file}", or move '
            "them: stoilo backup, then stoilo restore --database URL",
        )
    return url

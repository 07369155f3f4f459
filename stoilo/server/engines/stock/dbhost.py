"""What ``db_host`` means: to us the same as to BOINC's own programs.

They split it at the colon, take this machine's own name for ``localhost``, and leave the
rest to MariaDB's client library, for which ``localhost`` and nothing at all are the unix
socket, whatever the port. PyMySQL would open a TCP connection for these, which a server
with ``skip-networking``, or an account that may only come by the socket, does not take.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["DatabaseHost", "find_socket", "parse_host"]

LOCAL: Final = "localhost"
SOCKET_VARIABLE: Final = "MYSQL_UNIX_PORT"
"""By which MariaDB's client library is told of another socket."""

SOCKETS: Final = (
    "/run/mysqld/mysqld.sock",  # Debian, and what is tried where none is there
    "/var/run/mysqld/mysqld.sock",
    "/var/lib/mysql/mysql.sock",
    "/tmp/mysql.sock",  # noqa: S108 - where the library's own builds have it
)


@dataclass(frozen=True, slots=True)
class DatabaseHost:
    """Where the database listens; `port` 0: MariaDB's own.

    Attributes:
        name: of the host; `LOCAL`: its unix socket.
        port: for TCP.
    """

    name: str
    port: int = 0

    @property
    def is_local(self) -> bool:
        """Whether it is asked by its unix socket."""
        return self.name == LOCAL


def parse_host(text: str, own_name: str) -> DatabaseHost:
    """Return what a ``db_host`` means on the machine of that name; never fails.

    As in C, digits that are no port are none.
    """
    if text in {"", own_name}:
        return DatabaseHost(LOCAL)
    name, _, port = text.partition(":")
    number = int(port) if port.isascii() and port.isdigit() and len(port) < 6 else 0  # noqa: PLR2004 - 65535
    return DatabaseHost(name or LOCAL, number)


def find_socket(environment: Mapping[str, str], exists: Callable[[str], bool]) -> str:
    """Return the path of the database's socket on this machine."""
    named = environment.get(SOCKET_VARIABLE, "")
    return named or next(filter(exists, SOCKETS), SOCKETS[0])

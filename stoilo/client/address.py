"""Where the server is and who we are: connection files and ``host:port``.

`stoilo up` writes ``connection.json`` (0600): ``{"grpc": "host:port", "token": …, "ca":
PEM, …}``. The token is a secret; it is never part of a message.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote, urlsplit

from stoilo.core.errors import UsageError

ENVIRONMENT = "STOILO_CONNECTION"
MAX_FILE_BYTES = 64 * 1024
_HOST_PORT = re.compile(
    r"(?P<host>\[[0-9a-fA-F:.]+\]|[^:/\s\[\]]+):(?P<port>[0-9]{1,5})"
)


@dataclass(frozen=True, slots=True)
class Address:
    """A server and our credentials for it.

    Attributes:
        target: ``host:port`` of the gRPC service.
        token: bearer token; empty only for servers without accounts (tests).
        ca: PEM of the certificate authority; None = no TLS, loopback only.
        source: where the credentials came from, for messages.
        pages: URL of the server's pages with its final slash; empty where unknown.
    """

    target: str
    token: str = field(default="", repr=False)
    ca: bytes | None = field(default=None, repr=False)
    source: str = ""
    pages: str = ""

    def page_of(self, kind: str, name: str) -> str:
        """Return the console's page of a ``task`` or ``label``; empty where unknown.

        Who opens it signs in there: the address holds no secret.
        """
        return (
            f"{self.pages}console/{kind}/{quote(name, safe='')}" if self.pages else ""
        )


def resolve_address(where: str | os.PathLike[str] | None) -> Address:
    """Return the address that `where` means.

    A path names a connection file. ``host:port`` takes the credentials of the file that
    ``$STOILO_CONNECTION`` names. None takes that file as it is.

    Raises:
        UsageError: ``STO-C045`` no credentials, ``STO-C045`` a file that is not one,
            ``STO-C045`` plain text to another machine.
    """
    if isinstance(where, str) and _HOST_PORT.fullmatch(where):
        address = replace(_from_environment(where), target=where)
    elif where is None:
        address = _from_environment("")
    else:
        address = read_connection(Path(where))
    if address.ca is None and not is_loopback(address.target):
        raise UsageError(
            "STO-C045",
            f"{address.target} is not on this machine and the connection has no "
            "certificate",
            hint="use the connection file that the server wrote: it holds the CA",
        )
    return address


def _from_environment(target: str) -> Address:
    path = os.environ.get(ENVIRONMENT, "")
    if not path:
        what = f"no credentials for {target}" if target else "no server was named"
        raise UsageError(
            "STO-C045",
            what,
            hint=f"pass the path of the connection.json that `stoilo up` wrote, or set "
            f"${ENVIRONMENT} to it",
        )
    return read_connection(Path(path))


def read_connection(path: Path) -> Address:
    """Return the address in a connection file or raise ``STO-C045``."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        record = json.loads(data) if len(data) <= MAX_FILE_BYTES else None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise _not_a_connection(path, reason) from None
    except ValueError:
        raise _not_a_connection(path, "it is not JSON") from None
    if not isinstance(record, dict) or not isinstance(record.get("grpc"), str):
        raise _not_a_connection(path, "it names no server")
    if not _HOST_PORT.fullmatch(record["grpc"]):
        raise _not_a_connection(path, "its address is not host:port")
    token, ca = record.get("token") or "", record.get("ca")
    if not isinstance(token, str) or not isinstance(ca, str | None):
        raise _not_a_connection(path, "its credentials are not text")
    pages = _read_pages(record.get("http"))
    return Address(record["grpc"], token, ca.encode() if ca else None, str(path), pages)


def _read_pages(url: object) -> str:
    """Return the URL that links begin with; empty for what is none, or holds more."""
    if not isinstance(url, str) or not url.isprintable():
        return ""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    bare = not ("@" in parts.netloc or parts.query or parts.fragment)
    if parts.scheme not in {"http", "https"} or not parts.hostname or not bare:
        return ""
    return f"{url.rstrip('/')}/"


def _not_a_connection(path: Path, reason: str) -> UsageError:
    return UsageError(
        "STO-C045",
        f"{path} cannot be used as a connection file: {reason}",
        hint="pass the connection.json that `stoilo up --data DIR` keeps in DIR, or an "
        "address as host:port",
    )


def is_loopback(target: str) -> bool:
    """Whether ``host:port`` is this machine, by name or number."""
    host = target.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

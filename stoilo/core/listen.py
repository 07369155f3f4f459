"""Where a server of ours listens: an address as people write it, and its bound socket."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass

from stoilo.core.errors import InternalError, UsageError

LARGEST_PORT = 65_535


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port; port 0 = any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{bracket(self.host)}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(text: str) -> Address:
    """Return ``host:port`` as an address, or raise ``STO-R090``."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    is_number = port.isascii() and port.isdecimal()
    if not host or not is_number or not 0 <= int(port) <= LARGEST_PORT:
        raise UsageError(
            "STO-R090", f"{text[:80]!r} is not host:port", hint="use 127.0.0.1:0"
        )
    return Address(host, int(port))


def bracket(host: str) -> str:
    """Return `host` as it stands before a colon and a port."""
    return f"[{host}]" if ":" in host else host


def listen(text: str) -> socket.socket:
    """Return a bound socket for HTTP, or raise ``STO-U006``."""
    address = parse_address(text)
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Accepted sockets inherit it. A reply's body would otherwise wait 40 ms for the
    # client's delayed acknowledgement of its head.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listener.bind((address.host, address.port))
    except OSError as error:
        listener.close()
        raise cannot_bind(text) from error
    return listener


def cannot_bind(text: str) -> InternalError:
    """Return the error of an address that is taken or is none."""
    return InternalError(
        "STO-U006", f"{text} cannot be bound", hint="port 0 takes any free one"
    )

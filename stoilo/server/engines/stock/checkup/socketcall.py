"""Asks the engine behind BOINC's scripts whether it answers, as a script would."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from typing import TYPE_CHECKING, Final

from stoilo.server.engines.stock.messages import PING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ask_socket"]

SOCKET_S: Final = 10.0
_SILENT: Final = (
    f"it takes calls and answers none within {SOCKET_S:.0f} s:"
    " every worker is busy, or its thread has ended"
)


def ask_socket(path: Path, wait_s: float = SOCKET_S) -> str:
    """Return why nothing answers behind a socket, empty when something does.

    It is reached by its folder's descriptor: names of sockets are short, paths are not.
    """
    try:
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    except OSError as error:
        return error.strerror or "no answer"
    try:
        return _ask(f"/proc/self/fd/{folder}/{path.name}", wait_s)
    finally:
        os.close(folder)


def _ask(name: str, wait_s: float) -> str:
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as made:
        made.settimeout(wait_s)
        try:
            made.connect(name)
            made.sendall(PING.encode())
            made.shutdown(socket.SHUT_WR)
            answer = made.recv(8)
        except TimeoutError:
            return _SILENT
        except OSError as error:
            return error.strerror or "no answer"
    return "" if answer.isdigit() else "it hangs up without an answer"

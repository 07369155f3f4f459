"""Asks a project's URLs and our socket what clients and scripts ask; changes nothing."""

from __future__ import annotations

import os
import re
import socket
import urllib.error
import urllib.request
from contextlib import closing
from http.client import HTTPException
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from stoilo.server.engines.stock.checkup.snapshot import WebAnswer, WebView
from stoilo.server.engines.stock.scripts.server import PING

if TYPE_CHECKING:
    from pathlib import Path

    from stoilo.server.engines.stock.checkup.snapshot import DatabaseView
    from stoilo.server.engines.stock.project.directory import StockProject


WAIT_S: Final = 20.0
MOST_BYTES: Final = 64 * 1024
_SCHEDULER: Final = re.compile(
    r'<link rel="boinc_scheduler" href="([^"]+)">|<scheduler>\s*([^<\s]+)\s*</scheduler>'
)
_REQUEST: Final = (
    b"<scheduler_request>\n<core_client_major_version>7</core_client_major_version>\n"
    b"<core_client_minor_version>20</core_client_minor_version>\n"
    b"<core_client_release>5</core_client_release>\n</scheduler_request>\n"
)
_QUESTION: Final = (
    b"<data_server_request>\n<core_client_major_version>7</core_client_major_version>\n"
    b"<core_client_minor_version>20</core_client_minor_version>\n"
    b"<core_client_release>5</core_client_release>\n"
    b"<get_file_size>stoilo_no_such_file</get_file_size>\n</data_server_request>\n"
)


def ask_web(project: StockProject, database: DatabaseView) -> WebView:
    """Return what the project's web server says.

    The request to the scheduler has no account, so nobody's host appears by it.
    """
    config = project.config
    master_url = config.text("master_url")
    master = _ask(master_url)
    found = _SCHEDULER.search(master.body)
    scheduler = (found[1] or found[2]) if found else ""
    names = [name for one in database.versions for name in one.sizes]
    file = f"{project.download_url}/{names[0]}" if names else ""
    return WebView(
        master=master,
        scheduler=_ask(scheduler, _REQUEST),
        upload=_ask(config.text("upload_url"), _QUESTION),
        download=_ask(file),
        config=_ask(f"{master_url}get_project_config.php"),
    )


def _ask(url: str, body: bytes | None = None) -> WebAnswer:
    if urlsplit(url).scheme not in {"http", "https"}:
        return WebAnswer(url, trouble="no address is known")
    request = urllib.request.Request(  # noqa: S310 - of these two schemes
        url, body, {"Content-Type": "application/x-www-form-urlencoded"}
    )
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as reply:  # noqa: S310
            text = reply.read(MOST_BYTES).decode("utf-8", "replace")
            return WebAnswer(url, reply.status, text)
    except urllib.error.HTTPError as error:
        error.close()
        return WebAnswer(url, error.code)
    except (OSError, HTTPException, ValueError) as error:
        why = getattr(error, "reason", None) or error
        return WebAnswer(url, trouble=str(why)[:160])


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
        return _call(f"/proc/self/fd/{folder}/{path.name}", wait_s)
    finally:
        os.close(folder)


def _call(name: str, wait_s: float) -> str:
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

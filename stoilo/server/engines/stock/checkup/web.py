"""Asks a project's own URLs what a client would ask; nothing that changes anything."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from stoilo.server.engines.stock.checkup.snapshot import Answer, WebView

if TYPE_CHECKING:
    from stoilo.server.engines.stock.checkup.snapshot import DatabaseView
    from stoilo.server.engines.stock.project import StockProject

__all__ = ["ask_web"]

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
    master = _ask(config.master_url)
    found = _SCHEDULER.search(master.body)
    scheduler = (found[1] or found[2]) if found else ""
    names = [name for one in database.versions for name in one.sizes]
    file = f"{config.download_url}/{names[0]}" if names else ""
    return WebView(
        master=master,
        scheduler=_ask(scheduler, _REQUEST),
        upload=_ask(config.upload_url, _QUESTION),
        download=_ask(file),
        config=_ask(f"{config.master_url}get_project_config.php"),
    )


def _ask(url: str, body: bytes | None = None) -> Answer:
    """Return what a URL says, its beginning only."""
    if urlsplit(url).scheme not in {"http", "https"}:
        return Answer(url, trouble="no address is known")
    request = urllib.request.Request(  # noqa: S310 - of these two schemes
        url, body, {"Content-Type": "application/x-www-form-urlencoded"}
    )
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as reply:  # noqa: S310
            text = reply.read(MOST_BYTES).decode("utf-8", "replace")
            return Answer(url, reply.status, text)
    except urllib.error.HTTPError as error:
        error.close()
        return Answer(url, error.code)
    except (OSError, HTTPException, ValueError) as error:
        why = getattr(error, "reason", None) or error
        return Answer(url, trouble=str(why)[:160])

"""One request of somebody known, and the answers that every page is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from starlette.responses import RedirectResponse, Response

from stoilo.core.errors import UsageError
from stoilo.core.types import BOUNDS
from stoilo.web.routes import STRICT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request

    from stoilo.web.console.sessions import Visitor

HEADERS: Final = {
    **STRICT,
    "cache-control": "no-store",
    # With none at all a browser says of our own forms, too, that they come from nowhere.
    "referrer-policy": "same-origin",
}

# Of pages with our own script file; what stands on a page never runs.
WITH_SCRIPT: Final = {
    "content-security-policy": f"{STRICT['content-security-policy']}; script-src 'self'"
}


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of somebody known; a form's fields are untrusted, and so is a query."""

    request: Request
    visitor: Visitor
    fields: Mapping[str, str]
    render: Callable[..., Response]  # template's name, values → page
    live: bool = False  # asks for a page's changing part alone

    @property
    def task_id(self) -> str:
        """The id in the path, untrusted."""
        return str(self.request.path_params["task_id"])

    @property
    def path(self) -> str:
        """The path and query that were asked for, as they may stand in a link."""
        query = self.request.scope["query_string"].decode("ascii", "replace")
        return quote(self.request.scope["path"]) + (f"?{query}" if query else "")

    def query(self, name: str) -> str:
        """Return a query's first value; raises ``STO-R010`` for an overlong one."""
        text = self.request.query_params.get(name, "")
        if len(text) > BOUNDS.name_chars or not (text.isprintable() or not text):
            raise UsageError(
                "STO-R010", f"the question's {name} is too long or no text"
            )
        return text

    def number(self, name: str, most: int) -> int:
        """Return a query's number from 1 to `most`, 1 without one; raises ``STO-R010``."""
        text = self.query(name) or "1"
        if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= most):
            raise UsageError("STO-R010", f"the question's {name} is 1 to {most}")
        return int(text)


def go(path: str) -> Response:
    """Return an answer that leads to a page of ours, to be fetched anew."""
    return RedirectResponse(quote(path, safe="/?="), 303, HEADERS)


def download(body: bytes, name: str, media_type: str) -> Response:
    """Return bytes that a browser saves as the file `name` and never shows."""
    kept = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(body, 200, HEADERS | kept, media_type)

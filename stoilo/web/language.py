"""In which language a page is: GNU gettext's catalogues, chosen by what its reader asks for.

The operator puts ``LANGUAGE/LC_MESSAGES/stoilo.mo`` into ``DIR/translations``; without one, or
for who asks for no language that is there, pages are English. What a catalogue says is text
like any other: its markup is shown, never obeyed.
"""

from __future__ import annotations

import gettext as gnu
import re
import struct
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from markupsafe import escape
from starlette.routing import Route

from stoilo.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from pathlib import Path

    from markupsafe import Markup
    from starlette.requests import Request
    from starlette.responses import Response

ENGLISH: Final = "en"
FOLDER: Final = "translations"  # below the data directory
_DOMAIN: Final = "stoilo"
_NAME: Final = re.compile(r"[a-z]{2,3}(-[a-z0-9]{2,8}){0,2}")
_ASKED: Final = re.compile(
    r"\s*([a-z]{2,3}(?:-[a-z0-9]{2,8}){0,2})\s*(?:;\s*q=([01](?:\.[0-9]{0,3})?))?\s*"
)
_ASKED_CHARS: Final = 512  # read of what a browser sends
_English = (ENGLISH, gnu.NullTranslations())
_CHOSEN: ContextVar[tuple[str, gnu.NullTranslations]] = ContextVar(
    "language", default=_English
)


def language() -> str:
    """Return the language of this request's page, for ``<html lang>``."""
    return _CHOSEN.get()[0]


def gettext(message: str) -> str:
    """Return a message in this request's language."""
    return _CHOSEN.get()[1].gettext(message) if message else ""


def ngettext(one: str, many: str, count: int) -> str:
    """Return the form of a message that goes with a count."""
    return _CHOSEN.get()[1].ngettext(one, many, count)


def mark_safe(message: str) -> Markup:
    """Return a message for a template: escaped, whatever its catalogue holds."""
    return escape(gettext(message))


def _read(file: Path) -> gnu.GNUTranslations:
    """Return the operator's catalogue; raises ``STO-U004`` where it is none."""
    try:
        with file.open("rb") as data:
            return gnu.GNUTranslations(data)
    except (OSError, ValueError, struct.error) as error:
        raise UsageError(
            "STO-U004",
            f"{file} is not a catalogue of gettext",
            hint="make it with `msgfmt`, or take it away",
        ) from error


class Languages:
    """The catalogues of one server, read at its start; raises ``STO-U004``."""

    def __init__(self, folder: Path) -> None:
        self._known: dict[str, gnu.NullTranslations] = {ENGLISH: _English[1]}
        for file in sorted(folder.glob(f"*/LC_MESSAGES/{_DOMAIN}.mo")):
            name = file.parent.parent.name.replace("_", "-").lower()
            if _NAME.fullmatch(name):
                self._known[name] = _read(file)

    def choose(self, asked: str) -> str:
        """Return the best of what an ``Accept-Language`` header (hostile) asks for."""
        wanted = []
        for place, part in enumerate(asked[:_ASKED_CHARS].lower().split(",")):
            found = _ASKED.fullmatch(part)
            if found is not None:
                wanted.append((-float(found[2] or 1), place, found[1]))
        for weight, _, name in sorted(wanted):
            for one in (name, name.partition("-")[0]):
                if weight and one in self._known:
                    return one
        return ENGLISH

    def speak(self, routes: Iterable[Route]) -> list[Route]:
        """Return the same routes, their pages in the language that is asked for."""
        return [
            Route(
                one.path, self._speaking(one.endpoint), methods=list(one.methods or ())
            )
            for one in routes
        ]

    def _speaking(
        self, endpoint: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            name = self.choose(request.headers.get("accept-language", ""))
            before = _CHOSEN.set((name, self._known[name]))
            try:
                found = await endpoint(request)
            finally:
                _CHOSEN.reset(before)
            found.headers["vary"] = "accept-language"
            return found

        return answer


def template_words() -> Mapping[str, Any]:
    """Return what jinja2's ``i18n`` extension calls for a page's messages."""
    return {
        "gettext": mark_safe,
        "ngettext": lambda one, many, count: escape(ngettext(one, many, count)),
        "newstyle": True,
    }

"""Pages for people of the embedded project: templates, our style, and nothing that runs."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import Final

from starlette.responses import Response

_PAGES: Final = Path(__file__).parent / "pages"
_STYLE: Final = (_PAGES / "style.css").read_text("utf-8")
_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
# Our style, our forms, nothing else: no page of ours runs a script.
POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_STRICT: Final = {
    "cache-control": "no-store",
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


_PARAGRAPHS: Final = re.compile(r"\n\s*\n")


class Html(str):
    """Text that is HTML already; any other that goes into a page is escaped."""

    __slots__ = ()


def render_page(project: str, page: str, note: str = "", **values: str) -> str:
    """Return one of ``pages/``; `note` says what went well, or wrong."""
    kind = "bad" if page in {"login", "problem"} else "note"
    said = f'<p class="{kind}" role="status">{escape(note)}</p>\n' if note else ""
    body = _template(page).substitute(
        {
            key: one if isinstance(one, Html) else escape(one)
            for key, one in values.items()
        },
        note=said,
    )
    title = project if page == "front" else f"{project}: your preferences"
    head = values.get("link", "") if page == "front" else ""
    return _template("page").substitute(
        title=escape(title), style=_STYLE, body=body, link=head
    )


@cache
def _template(name: str) -> Template:
    return Template((_PAGES / f"{name}.html").read_text("utf-8"))


@dataclass(frozen=True, slots=True)
class Front:
    """What the front page tells beside addresses."""

    purpose: str = ""  # the operator's words; an empty line parts paragraphs
    fingerprint: str = ""  # SHA-256 of the root that ``release/root.json`` is, hex
    # Figures by their words, for anybody to see; cheap, however often it is asked
    figures: Callable[[], Mapping[str, int]] = dict


def render_front(project: str, url: str, front: Front, pages: str = "") -> str:
    """Return the front page: what for, how much, how to join. Its link has its own line.

    Args:
        project: its name.
        url: the master URL with final slash.
        front: what is told.
        pages: where people read the audit log, empty when there are no pages.
    """
    said = (
        front.purpose.strip() or "The operator has not yet said what is computed here."
    )
    numbers = "".join(
        f"<div><dt>{escape(words)}</dt><dd>{number:,}</dd></div>"
        for words, number in front.figures().items()
    )
    log = (
        f' · <a href="{escape(pages)}">The audit log</a>: all that ever ran · '
        '<a href="console/volunteer">What ran on your computers</a>'
        if pages
        else ""
    )
    return render_page(
        project,
        "front",
        link=Html(f'\n<link rel="boinc_scheduler" href="{escape(url)}sched">\n'),
        url=url,
        fingerprint=front.fingerprint or "…",
        purpose=Html(
            "\n".join(f"<p>{escape(one)}</p>" for one in _PARAGRAPHS.split(said))
        ),
        figures=Html(f'<dl class="figures">{numbers}</dl>' if numbers else ""),
        log=Html(log),
    )


def render_html(page: str, status: int = 200) -> Response:
    """Return a page under our strict policy."""
    return Response(page, status, media_type="text/html", headers=_STRICT)

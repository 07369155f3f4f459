"""The page on which volunteers of a stock project choose their level; pure.

BOINC's own page offers a choice of applications where none chosen means all of them. Ours
offers the highest level, where none chosen means `pure`.
"""

from __future__ import annotations

import re
from importlib import resources
from typing import Final

from stoilo.server.engines.stock.installation.levelapps import (
    APPS,
    CHOICE,
    app_label,
    chosen_work,
)
from stoilo.server.engines.stock.marks import Wish

__all__ = ["PREFERENCES_FILE", "mark_preferences", "render_preferences"]

PREFERENCES_FILE: Final = "html/project/project_specific_prefs.inc"


def render_preferences() -> str:
    """Return the PHP file that BOINC's preferences pages include."""
    folder = resources.files("stoilo.server.engines.stock.installation")
    text = (folder / "project_specific_prefs.inc").read_text("utf-8")
    rows = [f"    '{app}' => '{app_label(app)}'," for app in APPS]
    return text.replace("@LEVELS@", "\n".join(rows))


_CHOSEN: Final = re.compile(
    r"(<project_specific>)(.*?)(</project_specific>)", re.DOTALL
)


def mark_preferences(text: str) -> str:
    """Return an account's preferences with the element for the scheduler in every part.

    For those that were saved before the page wrote it: without it an account has `pure`
    only, whatever its owner chose. What is not of the page's form stays as it is.
    """
    return _CHOSEN.sub(_mark, text)


def _mark(match: re.Match[str]) -> str:
    before, inner, after = match.groups()
    if f"<{CHOICE}>" in inner:
        return match[0]
    level = _element(inner, "max_level")
    wish = Wish(
        _element(inner, "require_review") == "1",
        _element(inner, "require_public_source") == "1",
    )
    work = chosen_work(level if level in APPS else APPS[0], wish)
    return f"{before}{inner}<{CHOICE}>{work}</{CHOICE}>\n{after}"


def _element(text: str, tag: str) -> str:
    found = re.search(f"<{tag}>([^<]*)</{tag}>", text)
    return found[1].strip() if found else ""

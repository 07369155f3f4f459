"""The page on which volunteers of a stock project choose their level; pure.

BOINC's own page offers a choice of applications where none chosen means all of them. Ours
offers the highest level, where none chosen means `pure`.
"""

from __future__ import annotations

from importlib import resources
from typing import Final

from stoilo.server.engines.stock.installation.levelapps import APPS, app_label

__all__ = ["PREFERENCES_FILE", "render_preferences"]

PREFERENCES_FILE: Final = "html/project/project_specific_prefs.inc"


def render_preferences() -> str:
    """Return the PHP file that BOINC's preferences pages include."""
    folder = resources.files("stoilo.server.engines.stock.installation")
    text = (folder / "project_specific_prefs.inc").read_text("utf-8")
    rows = [f"    '{app}' => '{app_label(app)}'," for app in APPS]
    return text.replace("@LEVELS@", "\n".join(rows))

"""The levels as apps of a stock project, and who may get their tasks; pure.

BOINC sends an account without a selection every app. So every level above `pure` has app
versions of a plan class only, and the class asks for the volunteer's own choice,
``<max_level>`` of the project preferences: the element that our verifier reads as well, and
by which it can only lower the computer's own opt-in. Who chose nothing gets `pure`.
"""

from __future__ import annotations

import re
from typing import Final

from stoilo.executor.xmltext import escape
from stoilo.policies.levels import level_files
from stoilo.server.engines.embedded.people.levels import LEVELS

__all__ = [
    "APPS",
    "MOST_APPS",
    "add_apps",
    "app_label",
    "missing_plan_classes",
    "plan_class",
    "render_plan_class",
    "set_plan_classes",
]

MOST_APPS: Final = 10
"""Compiled into a stock scheduler (``MAX_APPS``)."""

OLDEST_CLIENT: Final = 70_000
"""7.0.0, as plan classes write it: older ones have no memory-mapped runtime interface."""

_LABELS: Final = {
    "pure": "plain Python",
    "numeric": "Python with arrays",
    "tensor": "Python with tensors, for training",
}
APPS: Final = tuple(name for name in LEVELS if name in level_files())
"""The levels that this package holds, lowest first: an app each."""


def app_label(app: str) -> str:
    """Return the name that volunteers see."""
    return f"stoilo {app}: {_LABELS.get(app, app)}"


def plan_class(app: str) -> str:
    """Return the plan class of an app's versions, empty for the lowest level."""
    return "" if app == LEVELS[0] else f"stoilo_{app}"


def render_plan_class(app: str) -> str:
    """Return the element that lets only volunteers who chose the level have its tasks."""
    enough = "|".join(LEVELS[LEVELS.index(app) :])
    return (
        "<plan_class>"
        f"<name>{plan_class(app)}</name>"
        f"<min_core_client_version>{OLDEST_CLIENT}</min_core_client_version>"
        "<project_prefs_tag>max_level</project_prefs_tag>"
        f"<project_prefs_regex>^({enough})$</project_prefs_regex>"
        "<max_threads>1</max_threads>"
        "</plan_class>"
    )


def missing_plan_classes(text: str) -> tuple[str, ...]:
    """Return the apps whose plan class is not in a ``plan_class_spec.xml`` as it must be."""
    return tuple(
        app for app in APPS if plan_class(app) and render_plan_class(app) not in text
    )


def set_plan_classes(text: str) -> str:
    """Return a ``plan_class_spec.xml`` with our classes, others left as they are."""
    kept = re.sub(
        r"[ \t]*<plan_class>\s*<name>stoilo_\w*</name>.*?</plan_class>[ \t]*\n?",
        "",
        text or "<plan_classes>\n</plan_classes>\n",
        flags=re.DOTALL,
    )
    made = "".join(f"    {render_plan_class(app)}\n" for app in APPS if plan_class(app))
    before, end, after = kept.rpartition("</plan_classes>")
    return f"{before}{made}{end}{after}"


def add_apps(text: str, missing: tuple[str, ...]) -> str:
    """Return a ``project.xml`` that names the apps `missing` as well."""
    made = "".join(
        f"    <app>\n        <name>{app}</name>\n        <user_friendly_name>"
        f"{escape(app_label(app))}</user_friendly_name>\n    </app>\n"
        for app in missing
        if f"<name>{app}</name>" not in text
    )
    before, end, after = text.rpartition("</boinc>")
    return f"{before}{made}{end}{after}"

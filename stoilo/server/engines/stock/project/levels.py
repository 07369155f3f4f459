"""The levels as apps of a stock project, and who may get their tasks; pure.

BOINC sends an account without a selection every app. So app versions have plan classes
only, and a class asks for the volunteer's own choice. A class looks at one element of the
project preferences, so our page writes everything into one more, ``<stoilo_work>``: the
highest level, then ``reviewed`` and ``public`` where only such tasks are wanted. Each
level has a class for each filter, and every volunteer fits one class of a level at most.
The verifier reads the single elements, by which it can only lower the computer's own
opt-in. Who chose nothing gets `pure`.

A volunteer may want reviewed tasks only, or tasks of public source only, and the verifier
on his computer refuses others. So that none is sent in vain, BOINC's batch number of a
workunit says which it is, and a class takes a range of batches (``min_batch``,
``max_batch``). Source: BOINC sched/plan_class_spec.cpp, sched/sched_customize.cpp.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources
from typing import Final

from stoilo.core.boinc.xml import escape
from stoilo.core.levels import level_files
from stoilo.server.engines.embedded.accounts.preferences import LEVELS

NO_BATCH: Final = 0
# In an order in which each wish is one range, and far from those that BOINC counts up by
# itself for batches of its own.
_REVIEWED: Final = 2_000_000_001
_BOTH: Final = 2_000_000_002
_PUBLIC: Final = 2_000_000_003


@dataclass(frozen=True, slots=True)
class HostFilter:
    """What a volunteer wants of every task that he gets."""

    reviewed: bool = False  # a reviewer has signed it
    public: bool = False  # its source may be published

    @property
    def words(self) -> tuple[str, ...]:
        """Return the words for it in preferences and names of plan classes."""
        return ("reviewed",) * self.reviewed + ("public",) * self.public

    @property
    def batches(self) -> tuple[int, int] | None:
        """Return the first and last batch that fulfil it, None for every one."""
        if not self.reviewed and not self.public:
            return None
        return (
            _BOTH if self.public else _REVIEWED,
            _BOTH if self.reviewed else _PUBLIC,
        )


HOST_FILTERS: Final = tuple(
    HostFilter(one, other) for one in (False, True) for other in (False, True)
)


def batch_of(*, reviewed: bool, public: bool) -> int:
    """Return the batch number of a workunit."""
    if reviewed:
        return _BOTH if public else _REVIEWED
    return _PUBLIC if public else NO_BATCH


# Compiled into a stock scheduler (``MAX_APPS``).
MOST_APPS: Final = 10

# 7.0.0, as plan classes write it: older ones have no memory-mapped runtime interface.
OLDEST_CLIENT: Final = 70_000

# Element of the project preferences that plan classes look at.
CHOICE: Final = "stoilo_work"

ANY: Final = HostFilter()
_LABELS: Final = {
    "pure": "plain Python",
    "numeric": "Python with arrays",
    "tensor": "Python with tensors, for training",
}
# The levels that this package holds, lowest first: an app each.
APPS: Final = tuple(name for name in LEVELS if name in level_files())


def app_label(app: str) -> str:
    """Return the name that volunteers see."""
    return f"stoilo {app}: {_LABELS.get(app, app)}"


def plan_class(app: str, wish: HostFilter = ANY) -> str:
    """Return the plan class of an app's version for volunteers with a wish."""
    return "_".join(("stoilo", app, *wish.words))


def plan_classes(app: str) -> tuple[str, ...]:
    """Return all plan classes of an app, the one for everybody first."""
    return tuple(plan_class(app, wish) for wish in HOST_FILTERS)


def chosen_work(level: str, wish: HostFilter = ANY) -> str:
    """Return the content of ``<stoilo_work>`` for a volunteer's choice."""
    return " ".join((level, *wish.words))


def render_plan_class(app: str, wish: HostFilter = ANY) -> str:
    """Return the element that lets only volunteers who chose it have the app's tasks."""
    enough = "|".join(LEVELS[LEVELS.index(app) :])
    words = "".join(f" {word}" for word in wish.words)
    anybody = app == LEVELS[0] and wish == ANY
    limits = ""
    if (batches := wish.batches) is not None:
        low, high = batches
        limits = f"<min_batch>{low}</min_batch><max_batch>{high}</max_batch>"
    return (
        "<plan_class>"
        f"<name>{plan_class(app, wish)}</name>"
        f"<min_core_client_version>{OLDEST_CLIENT}</min_core_client_version>"
        f"<project_prefs_tag>{CHOICE}</project_prefs_tag>"
        f"<project_prefs_regex>^({enough}){words}$</project_prefs_regex>"
        f"{'<project_prefs_default_true>1</project_prefs_default_true>' * anybody}"
        f"{limits}"
        "<max_threads>1</max_threads>"
        "</plan_class>"
    )


def set_plan_classes(text: str) -> str:
    """Return a ``plan_class_spec.xml`` with our classes, others left as they are."""
    kept = re.sub(
        r"[ \t]*<plan_class>\s*<name>stoilo_\w*</name>.*?</plan_class>[ \t]*\n?",
        "",
        text or "<plan_classes>\n</plan_classes>\n",
        flags=re.DOTALL,
    )
    made = "".join(
        f"    {render_plan_class(app, wish)}\n" for app in APPS for wish in HOST_FILTERS
    )
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


PREFERENCES_FILE: Final = "html/project/project_specific_prefs.inc"


def render_preferences() -> str:
    """Return the PHP file that BOINC's preferences pages include."""
    folder = resources.files("stoilo.server.engines.stock.installation")
    text = (folder / "project_specific_prefs.inc").read_text("utf-8")
    rows = [f"    '{app}' => '{app_label(app)}'," for app in APPS]
    return text.replace("@LEVELS@", "\n".join(rows))

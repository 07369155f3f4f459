"""The console's words for states and figures, in one place for a translator. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stoilo.web.language import gettext
from stoilo.web.wording import render_bytes, render_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stoilo.core.errors import StoiloError

LINKS: Final = (
    ("/console/", "Tasks"),
    ("/console/labels", "Maps and trainings"),
    ("/console/account", "Account"),
    ("/console/project", "Project"),
    ("/console/hosts", "Hosts"),
    ("/console/traffic", "Traffic"),
    ("/console/accounts", "Accounts"),
    ("/console/settings", "Settings"),
    ("/console/reviews", "Reviews"),
    ("/console/volunteer", "Your computers"),
)
OF_OPERATORS: Final = frozenset(path for path, _ in LINKS[3:8])
# Of roles whose pages are others than a researcher's; the first is where they begin
OF_ROLES: Final = {
    "reviewer": ("/console/reviews", "/console/account"),
    "volunteer": ("/console/volunteer",),
}
_OF_NO_TASKS: Final = frozenset(paths[0] for paths in OF_ROLES.values())
STATES: Final = {
    "admitting": "being admitted",
    "waiting_review": "waits for a review",
    "running": "with volunteers",
    "succeeded": "succeeded",
    "user_error": "its own error",
    "system_error": "no result",
    "expired": "expired",
    "cancelled": "cancelled",
}
BAD: Final = frozenset({"user_error", "system_error", "expired"})
COPIES: Final = {
    "unsent": "waits for a host",
    "in_progress": "on a host",
    "success": "came back",
    "client_error": "failed there",
    "no_reply": "did not come back",
    "aborted": "stopped by the volunteer",
    "invalid": "not believed",
    "not_needed": "not needed any more",
    "refused": "refused by the volunteer",
}
SAID: Final = {
    "cancelled": "The task was cancelled. What volunteers still hold of it is taken back.",
    "ended": "The task had ended before: nothing was changed.",
    "passkey": "The passkey is kept. Try it before you rely on it: sign out, and in with it.",
    "removed": "It opens nothing any more, if it ever did.",
    "resubmitted": "This is the same work once more, as a task of its own.",
}
KINDS: Final = {
    "NoneType": "None",
    "bool": "a truth value",
    "int": "a whole number",
    "float": "a number",
    "complex": "a complex number",
    "str": "text",
    "bytes": "bytes",
    "list": "a list",
    "tuple": "a tuple",
    "set": "a set",
    "frozenset": "a frozen set",
    "dict": "a dictionary",
    "datetime": "a time",
    "Ndarray": "an array",
    "Tensor": "a tensor",
}
# A section's title, and how the names of its metrics begin; the first that fits counts.
SECTIONS: Final = (
    ("Throughput", ("stoilo_admissions", "stoilo_epoch_admissions", "stoilo_results")),
    ("Queues", ("stoilo_tasks", "stoilo_attempt", "stoilo_events", "stoilo_valid",
                "stoilo_workunits", "stoilo_outcomes")),
    ("Volunteers", ("stoilo_accounts", "stoilo_hosts")),
    ("Log", ("stoilo_log",)),
    ("Server and disk", ("stoilo_disk", "stoilo_resident", "stoilo_cpu", "stoilo_open")),
)  # fmt: skip


def links_of(role: str) -> list[tuple[str, str]]:
    """Return the pages that are open to a role, each with its name."""
    hidden = _OF_NO_TASKS if role == "operator" else _OF_NO_TASKS | OF_OPERATORS
    own = OF_ROLES.get(role)
    return [
        (path, gettext(name))
        for path, name in LINKS
        if (path in own if own else path not in hidden)
    ]


def home_of(role: str) -> str:
    """Return where a role's pages begin."""
    return OF_ROLES.get(role, ("/console/",))[0]


def section_of(metric: str) -> str:
    """Return the title of a metric's section, empty for one that has none."""
    return next((title for title, names in SECTIONS if metric.startswith(names)), "")


def render_figures(metric: str, values: Sequence[tuple[str, float]]) -> str:
    """Return a metric's values by label; of many only those that are not zero."""
    shown = [
        f"{gettext(STATES.get(label, label.replace('_', ' ')))} "
        f"{render_figure(metric, value)}"
        for label, value in values
        if value or len(values) == 1
    ]
    return ", ".join(shown).strip() or gettext("none")


def render_figure(name: str, value: float) -> str:
    """Return a metric's value in its unit, which its name ends with."""
    if name.endswith("_bytes"):
        return render_bytes(int(value))
    if name.endswith(("_seconds", "_seconds_total")):
        return render_seconds(round(value))
    return f"{value:,.10g}"


def describe_problem(error: StoiloError) -> str:
    """Return one of our errors as sentences with its code."""
    parts = filter(None, (error.message, error.hint))
    text = ". ".join(f"{one[:1].upper()}{one[1:]}" for one in parts)
    return f"{text} [{error.code}]."

"""A user's global preferences (BOINC's), carried from one of their hosts to the others.

They say when and how much a client computes, for all its projects. A client sends XML;
what is kept is a list of known elements with numbers, written anew by us, so no byte of a
client's text reaches another host. The newest ``mod_time`` wins. Documents with parts
that this form cannot say (venues, times of single days) are left alone: a host keeps
what it has rather than losing a part of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from sqlalchemy import delete, insert

from stoilo.core.boinc.xml import XmlBounds, parse_xml
from stoilo.core.errors import TrustError
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.database import must_write

if TYPE_CHECKING:
    from sqlalchemy import Connection

BOUNDS: Final = XmlBounds(document_bytes=64 * 1024, depth=6, elements=500)
# A client's clock may be wrong by that; a later time would win for ever
MOST_AHEAD_S: Final = 86_400
# Documents remembered: each client sends the same ones with every call
PARSED: Final = 128
_NUMBERS: Final = """
    battery_charge_min_pct battery_max_temperature confirm_before_connecting
    cpu_scheduling_period_minutes cpu_usage_limit daily_xfer_limit_mb
    daily_xfer_period_days disk_interval disk_max_used_gb disk_max_used_pct
    disk_min_free_gb dont_verify_images end_hour hangup_if_dialed idle_time_to_run
    leave_apps_in_memory max_bytes_sec_down max_bytes_sec_up max_ncpus max_ncpus_pct
    net_end_hour net_start_hour network_wifi_only niu_cpu_usage_limit
    niu_max_ncpus_pct niu_suspend_cpu_usage ram_max_used_busy_pct
    ram_max_used_idle_pct run_gpu_if_user_active run_if_user_active
    run_on_batteries start_hour suspend_cpu_usage suspend_if_no_recent_input
    vm_max_used_pct work_buf_additional_days work_buf_min_days
"""
# Settings that are one number each
GLOBAL_TAGS: Final = frozenset(_NUMBERS.split())
_NOT_KEPT: Final = frozenset({"venue", "day_prefs"})


@dataclass(frozen=True, slots=True)
class GlobalPreferences:
    """Known settings with their numbers, ordered by name."""

    modified_at: int  # when the user changed them, s
    settings: tuple[tuple[str, float], ...]  # names of `GLOBAL_TAGS` and their values


@dataclass(frozen=True, slots=True)
class StoredPreferences:
    """A user's preferences as they go out: our own text, and its ``mod_time``, s."""

    modified_at: int
    document: str


@lru_cache(maxsize=PARSED)
def parse_global_preferences(text: str) -> GlobalPreferences | None:
    """Return a client's (hostile) preferences; None where there are none to carry.

    With or without the element ``<global_preferences>`` around them. Unknown elements
    and values that are no numbers are left out.
    """
    try:
        root = parse_xml(f"<all>{text}</all>".encode(), BOUNDS)
    except TrustError:
        return None
    root = root.find("global_preferences") or root
    if any(child.tag in _NOT_KEPT for child in root.children):
        return None
    numbers: dict[str, float] = {}
    for child in root.children:
        if child.tag in GLOBAL_TAGS or child.tag == "mod_time":
            value = _number(child.text)
            if value is not None:
                numbers[child.tag] = value
    modified_at = int(numbers.pop("mod_time", 0))
    if modified_at <= 0 or not numbers:
        return None
    return GlobalPreferences(modified_at, tuple(sorted(numbers.items())))


def render_global_preferences(preferences: GlobalPreferences) -> str:
    """Return the elements inside ``<global_preferences>``."""
    lines = [f"<mod_time>{preferences.modified_at}</mod_time>"]
    lines += [f"<{tag}>{value:.6f}</{tag}>" for tag, value in preferences.settings]
    return "\n".join(lines) + "\n"


def exchange_global_preferences(
    connection: Connection,
    user_id: int,
    stored: StoredPreferences | None,
    sent: str,
    now: int,
    *,
    weak: bool,
) -> str:
    """Store what a host sent if it is the newest; return what is newer than that.

    Empty when the host has the newest already, or its user has none. From a caller with
    the `weak` key nothing is stored (BOINC: ``handle_global_prefs``).
    """
    given = parse_global_preferences(sent)
    if given is None:
        return "" if stored is None or sent.strip() else stored.document
    stored_at = stored.modified_at if stored else 0
    if not weak and stored_at < given.modified_at <= now + MOST_AHEAD_S:
        must_write(connection)
        table = schema.global_preferences
        connection.execute(delete(table).where(table.c.user_id == user_id))
        connection.execute(
            insert(table).values(
                user_id=user_id,
                modified_at=given.modified_at,
                document=render_global_preferences(given),
            )
        )
    return stored.document if stored and stored_at > given.modified_at else ""


def _number(text: str) -> float | None:
    """Return a number from 0 to 10^12 (empty: BOINC's flag, 1), None for anything else."""
    if not text:
        return 1.0
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0.0 <= value <= 1e12 else None  # noqa: PLR2004

"""``init_data.xml``: what a BOINC client says to the application that it starts.

It is not strict XML (preferences are copied in as a server wrote them), names the account's
key among much else, and is hostile where a server wrote it: the few elements that are needed
are looked for, bounded, and nothing of it is ever handed to a task.
Source: BOINC, ``lib/app_ipc.cpp`` (facts: boinc.md §4.2).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from stoilo.core.errors import TrustError
from stoilo.executor.optin import ServerPreferences

__all__ = ["INIT_FILE", "MAX_INIT_BYTES", "SlotInfo", "parse_init_data"]

INIT_FILE: Final = "init_data.xml"
MAX_INIT_BYTES: Final = 256 * 1024
CHECKPOINT_PERIOD_S: Final = 300.0
"""Where the client says nothing: its own default, s."""
MOST_S: Final = 1e9
MOST_PID: Final = 1 << 22
GIGABYTE: Final = 10**9

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,255}")


@dataclass(frozen=True, slots=True)
class SlotInfo:
    """What ``init_data.xml`` says; hostile where a server wrote it.

    Attributes:
        app: BOINC app under which the task came.
        workunit: workunit name, ``<task id>_<attempt>``.
        result: result name.
        preferences: what the project's preferences ask for; only lowers.
        disk_bytes: what BOINC may use of the disk by its user's preference; None: unsaid.
        client_pid: of the client, 0: unsaid.
        cpu_s: processor time of earlier starts up to the last checkpoint, s.
        checkpoint_period_s: least time between two checkpoints, s.
        fraction_start: what `fraction_done` is at the start of this task, 0 to 1.
        fraction_end: what it is at its end.
        slot_bytes: what the workunit may take of the disk; None: unsaid.
    """

    app: str
    workunit: str
    result: str
    preferences: ServerPreferences = field(default_factory=ServerPreferences)
    disk_bytes: int | None = None
    client_pid: int = 0
    cpu_s: float = 0.0
    checkpoint_period_s: float = CHECKPOINT_PERIOD_S
    fraction_start: float = 0.0
    fraction_end: float = 1.0
    slot_bytes: int | None = None


def parse_init_data(data: bytes) -> SlotInfo:
    """Return what the client says of the task; raises ``STO-F038``.

    BOINC copies preferences into the file as they are, so they are cut out first: they
    may hold any text, also the names of other elements.
    """
    text = data.decode("utf-8", "replace")
    before, _, rest = text.partition("<project_preferences>")
    wishes, _, after = rest.rpartition("</project_preferences>")
    outer = before + after
    start = _within(outer, "fraction_done_start", 0.0, 1.0)
    end = max(start, _within(outer, "fraction_done_end", 1.0, 1.0))
    return SlotInfo(
        app=_name(outer, "app_name"),
        workunit=_name(outer, "wu_name"),
        result=_name(outer, "result_name"),
        preferences=_preferences(wishes),
        disk_bytes=_disk_bytes(outer),
        client_pid=int(_within(outer, "client_pid", 0, MOST_PID)),
        cpu_s=_within(outer, "wu_cpu_time", 0.0, MOST_S),
        checkpoint_period_s=_within(
            outer, "checkpoint_period", CHECKPOINT_PERIOD_S, MOST_S
        ),
        fraction_start=start,
        fraction_end=end,
        slot_bytes=int(_within(outer, "rsc_disk_bound", 0, GIGABYTE**2)) or None,
    )


def _text(document: str, tag: str) -> str:
    """Return the text of the first element `tag`, empty if there is none."""
    start, end = f"<{tag}>", f"</{tag}>"
    _, found, rest = document.partition(start)
    text, closed, _ = rest.partition(end)
    return text.strip() if found and closed else ""


def _name(document: str, tag: str) -> str:
    """Return a BOINC name; raises ``STO-F038``."""
    name = _text(document, tag)
    if not _NAME.fullmatch(name):
        raise TrustError(
            "STO-F038",
            f"the slot cannot be used: {INIT_FILE} has no usable <{tag}>",
            hint="a BOINC client starts the launcher in a slot; nothing else does",
        )
    return name


def _preferences(wishes: str) -> ServerPreferences:
    """Return what the project's page asks of this host; absent: nothing less."""
    return ServerPreferences(
        max_level=_text(wishes, "max_level") or ServerPreferences().max_level,
        require_review=_text(wishes, "require_review") not in {"", "0"},
        require_public_source=_text(wishes, "require_public_source") not in {"", "0"},
    )


def _disk_bytes(document: str) -> int | None:
    """Return the least of what BOINC's preferences leave it of the disk, bytes."""
    total = _number(document, "d_total")
    most = _number(document, "disk_max_used_gb")
    percent = _number(document, "disk_max_used_pct")
    bounds = [most * GIGABYTE] if most else []
    if percent is not None and total:
        bounds.append(total * min(percent, 100.0) / 100)
    return int(min(bounds)) if bounds else None


def _number(document: str, tag: str) -> float | None:
    """Return an element's number from 0 to 10^18, None when it is none."""
    text = _text(document, tag)
    if not re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,18})?(e\+[0-9]{1,2})?", text):
        return None
    value = float(text)
    return value if value <= GIGABYTE**2 else None


def _within(document: str, tag: str, default: float, most: float) -> float:
    """Return an element's number, `default` for what is none or above `most`."""
    value = _number(document, tag)
    return default if value is None or value > most else value

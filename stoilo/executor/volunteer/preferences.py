"""When and how much a volunteer computes: BOINC's global preferences, in its own files.

    global_prefs.xml            of all the user's computers; projects carry it between them
    global_prefs_override.xml   of this computer alone; what it says counts

Of their settings those are obeyed that a process without a screen can: processors, hours,
disk. Whether somebody is at the keyboard or the machine runs on its battery is not known
here (in a container it cannot be). A document that came by a project can only restrict
what this computer would do without it, and never what the override says.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from stoilo.core.boinc.xml import Element, XmlBounds, parse_xml
from stoilo.core.errors import TrustError, UsageError
from stoilo.executor.verifier.installation import replace_file

SHARED: Final = "global_prefs.xml"
OVERRIDE: Final = "global_prefs_override.xml"
BOUNDS: Final = XmlBounds(document_bytes=64 * 1024, depth=6, elements=500)
GIB: Final = 1024.0**3
DAY_H: Final = 24.0
MOST_AHEAD_S: Final = 86_400.0
"""How far a project's documents may be ahead of this computer's clock, s."""

_Stamp = tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class ComputingPreferences:
    """Settings by BOINC's names, each None where nothing is said."""

    mod_time: float | None = None  # when the user changed them, s since 1970
    max_ncpus_pct: float | None = None  # of the processors, percent
    start_hour: float | None = None  # computing begins then, local time, hours
    end_hour: float | None = None  # and ends then; both equal: at any time
    # most that files may take, GiB; 0: no limit (as BOINC has it)
    disk_max_used_gb: float | None = None
    disk_max_used_pct: float | None = None  # the same, percent of the disk
    disk_min_free_gb: float | None = None  # to be left free, GiB

    def over(self, other: ComputingPreferences) -> ComputingPreferences:
        """Return what counts when this one says something, else `other`."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return ComputingPreferences(
            **{
                name: getattr(other, name) if value is None else value
                for name, value in own.items()
            }
        )

    def slots(self, asked: int, processors: int) -> int:
        """Return how many copies may run at once: at least one, at most `asked`."""
        percent = self.max_ncpus_pct or 100.0
        return max(1, min(asked, int(processors * percent / 100)))

    def allows_hour(self, hour: float) -> bool:
        """Say whether computing is wanted at that local hour, 0 to 24."""
        start, end = self.start_hour or 0.0, self.end_hour or 0.0
        if start == end:
            return True
        if start < end:
            return start <= hour < end
        return hour >= start or hour < end

    def room(self, used: float, free: float, total: float) -> float:
        """Return how many bytes more may be stored; below 0: too much is.

        Args:
            used: by us, bytes.
            free: on the disk that our files lie on, bytes.
            total: of that disk, bytes.
        """
        most = [free - (self.disk_min_free_gb or 0.0) * GIB]
        if self.disk_max_used_gb:
            most.append(self.disk_max_used_gb * GIB - used)
        if self.disk_max_used_pct:
            most.append(total * self.disk_max_used_pct / 100 - used)
        return min(most)


def parse_preferences(text: str) -> ComputingPreferences:
    """Return what a document says, with or without ``<global_preferences>`` around it.

    Unknown settings, and numbers out of their range, are passed over.

    Raises:
        TrustError: STO-X030 it is no XML, or too large.
    """
    root = parse_xml(f"<all>{text}</all>".encode(), BOUNDS)
    root = root.find("global_preferences") or root
    return ComputingPreferences(
        mod_time=_number(root, "mod_time", 1e12),
        max_ncpus_pct=_number(root, "max_ncpus_pct", 100.0),
        start_hour=_number(root, "start_hour", DAY_H),
        end_hour=_number(root, "end_hour", DAY_H),
        disk_max_used_gb=_number(root, "disk_max_used_gb", 1e9),
        disk_max_used_pct=_number(root, "disk_max_used_pct", 100.0),
        disk_min_free_gb=_number(root, "disk_min_free_gb", 1e9),
    )


def _number(root: Element, tag: str, most: float) -> float | None:
    """Return a number from 0 to `most`, None for anything else."""
    found = root.find(tag)
    try:
        value = float(found.text) if found is not None else -1.0
    except ValueError:
        return None
    return value if 0.0 <= value <= most else None


class PreferenceFiles:
    """Both files of one directory, read again when they change.

    Args:
        directory: the volunteer's own; no project writes to it but by `learn`.
        hour: the local time, hours.
        clock: s since 1970.

    Raises:
        UsageError: ``STO-A060`` the user's own file cannot be read: rather nothing is
            computed than against a wish.
    """

    def __init__(
        self,
        directory: Path,
        hour: Callable[[], float] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._directory = directory
        self._hour = hour or _local_hour
        self._clock = clock
        self._stamps: tuple[_Stamp, _Stamp] | None = None
        self._in_force = ComputingPreferences()
        self.text = ""
        self.in_force()

    def in_force(self) -> ComputingPreferences:
        """Return what counts now; raises ``STO-A060``."""
        stamps = (_stamp(self._directory / SHARED), _stamp(self._directory / OVERRIDE))
        if stamps != self._stamps:
            own = self._read(OVERRIDE)
            self.text = self._read(SHARED)
            self._in_force = _own(own).over(_shared(self.text))
            self._stamps = stamps
        return self._in_force

    def allows_now(self) -> bool:
        """Say whether computing is wanted at this hour."""
        return self.in_force().allows_hour(self._hour())

    def slots(self, asked: int) -> int:
        """Return how many copies may run at once."""
        return self.in_force().slots(asked, os.cpu_count() or 1)

    def room(self, used: float) -> float:
        """Return how many bytes more may be stored, where `used` are."""
        try:
            disk = shutil.disk_usage(self._directory)
        except OSError:
            return 0.0
        return self.in_force().room(used, disk.free, disk.total)

    def learn(self, elements: str) -> None:
        """Keep what came by a project, if it is newer than what is here (as BOINC does).

        One that says it is of a time that has not come gives way to any other: else a
        project could make its own the last.

        Args:
            elements: inside ``<global_preferences>``, untrusted; empty for none.
        """
        if not elements:
            return
        try:
            fresh = parse_preferences(elements).mod_time or 0.0
        except TrustError:
            return
        limit = self._clock() + MOST_AHEAD_S
        known = _shared(self.text).mod_time or 0.0
        is_newer = (fresh <= limit, fresh) > (known <= limit, known)
        if fresh and (is_newer or not known):
            text = f"<global_preferences>\n{elements.strip()}\n</global_preferences>\n"
            replace_file(self._directory / SHARED, text.encode())
            self.text = text.strip()

    def _read(self, name: str) -> str:
        """Return a file's text, empty without one; raises ``STO-A060``."""
        try:
            with (self._directory / name).open("rb") as file:
                data = file.read(BOUNDS.document_bytes)
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise _unreadable(name) from error
        return data.decode("utf-8", "replace").strip()


def _own(text: str) -> ComputingPreferences:
    """Return the user's own settings; raises ``STO-A060``."""
    try:
        return parse_preferences(text)
    except TrustError as error:
        raise _unreadable(OVERRIDE) from error


def _shared(text: str) -> ComputingPreferences:
    """Return the settings of a document that came by a project; none if it is broken."""
    try:
        return parse_preferences(text)
    except TrustError:
        return ComputingPreferences()


def _unreadable(name: str) -> UsageError:
    return UsageError(
        "STO-A060",
        f"{name} of the state directory cannot be read",
        hint="correct it, or remove it",
    )


def _stamp(path: Path) -> _Stamp:
    """Return what changes with a file, None without one."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino


def _local_hour() -> float:
    now = time.localtime()
    return now.tm_hour + now.tm_min / 60

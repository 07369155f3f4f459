"""What a check of a log found: where, what is wrong there, and what would help."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["MAX_FINDINGS", "Finding", "FindingList", "Severity"]

MAX_FINDINGS = 1000


class Severity(StrEnum):
    """Whether something is wrong, or only worth knowing."""

    FAULT = "fault"
    NOTICE = "notice"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found.

    Attributes:
        code: the stable code, for `stoilo explain`.
        severity: a fault, or the harmless remains of a crash.
        file: the file, relative to the directory that was checked.
        place: where in the file (``leaf 17``, ``page 3``), empty for all of it.
        message: what is there and what should be.
        remedy: which backup or other copy would help; empty for a notice.
    """

    code: str
    severity: Severity
    file: str
    place: str
    message: str
    remedy: str

    def __str__(self) -> str:
        """Return one line: where, what, which code."""
        place = f", {self.place}" if self.place else ""
        return f"{self.file}{place}: {self.message} [{self.code}]"


class FindingList:
    """Collects findings; keeps at most `MAX_FINDINGS` and counts the others."""

    def __init__(self) -> None:
        self.kept: list[Finding] = []
        self._known: set[Finding] = set()
        self.omitted = 0
        self.faults = 0

    def fault(
        self, code: str, file: str, message: str, *, place: str = "", remedy: str = ""
    ) -> None:
        """Record something that is wrong."""
        if self._keep(Finding(code, Severity.FAULT, file, place, message, remedy)):
            self.faults += 1

    def notice(self, code: str, file: str, message: str, *, place: str = "") -> None:
        """Record something worth knowing that is not wrong."""
        self._keep(Finding(code, Severity.NOTICE, file, place, message, ""))

    def _keep(self, finding: Finding) -> bool:
        """Take a finding; False when it was kept before (a part is read twice)."""
        if finding in self._known:
            return False
        if len(self.kept) < MAX_FINDINGS:
            self.kept.append(finding)
            self._known.add(finding)
        else:
            self.omitted += 1
        return True

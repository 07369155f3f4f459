"""Poll again and again, show what was found, stop at misbehaviour."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from stoilo.audit.monitor.finding import Finding, FindingKind, Severity
from stoilo.audit.sqlite import sync_directory
from stoilo.core.digests import content_digest
from stoilo.core.errors import StoiloError, TrustError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stoilo.audit.monitor.monitor import Monitor
    from stoilo.audit.monitor.state import MonitorState

__all__ = ["MonitorReport", "Stop", "run_monitor", "write_proof"]

_OWN = frozenset({"STO-L123", "STO-L124"})
_VERIFICATION_FAILED = TrustError.exit_code


@dataclass(frozen=True, slots=True)
class MonitorReport:
    """How a run ended.

    Attributes:
        origin: of the log; empty when nothing was seen of it yet.
        size: leaves that were matched.
        root: of them, hex.
        findings: how many were shown.
        exit_code: 4 after misbehaviour or, of a single poll, any alarm; that of the
            error when the only poll failed; else 0.
    """

    origin: str
    size: int
    root: str
    findings: int
    exit_code: int


class Stop(Protocol):
    """Who may end the watch, as a `threading.Event` can."""

    def wait(self, timeout: float) -> bool:
        """Wait that long, s, or until it is to end; returns whether it is."""
        ...


def run_monitor(
    monitor: Monitor,
    state: MonitorState,
    show: Callable[[Finding, str], None],
    *,
    once: bool = False,
    interval_s: float = 60.0,
    stop: Stop,
) -> MonitorReport:
    """Poll until `stop` says so or the log has misbehaved (or once).

    Args:
        monitor: of the log.
        state: its memory.
        show: takes each finding and the file of its proof (empty for none); a finding
            is forgotten when `show` has returned.
        once: one poll only.
        interval_s: pause between polls, s.
        stop: when to end.

    Raises:
        TrustError: ``STO-L124`` the state is damaged.
    """
    failure: StoiloError | None = None
    shown, worst = 0, 0
    while True:
        before, failure = failure, _poll(monitor)
        if failure is not None and (before is None or before.code != failure.code):
            kind = FindingKind.UNREADABLE
            show(Finding(kind, Severity.ALARM, failure.message, failure.code), "")
            shown += 1
        for finding in _show_all(state, show):
            shown += 1
            if finding.severity is not Severity.NOTICE:
                worst = _VERIFICATION_FAILED
        if once or state.memory.condemned or stop.wait(interval_s):
            break
    if failure is not None:
        worst = worst or failure.exit_code
    code = worst if once or state.memory.condemned else 0
    origin = state.memory.note.partition(b"\n")[0].decode()
    root = state.mirror.root_at(state.memory.size).hex()
    return MonitorReport(origin, state.memory.size, root, shown, code)


def _poll(monitor: Monitor) -> StoiloError | None:
    """Poll once; return what kept the log from being followed."""
    try:
        monitor.poll()
    except (TrustError, UnreachableError) as error:
        if error.code in _OWN:
            raise
        return error
    return None


def _show_all(
    state: MonitorState, show: Callable[[Finding, str], None]
) -> list[Finding]:
    """Show every finding and forget it; a proof is written down first."""
    found = []
    for number, finding in state.findings():
        place = ""
        if finding.proof:
            place = _keep_proof(state.path.parent, finding.proof.encode())
        show(finding, place)
        state.forget_finding(number)
        found.append(finding)
    return found


def _keep_proof(directory: Path, proof: bytes) -> str:
    """Return the file of a proof; empty if none can be written: it is shown anyway."""
    try:
        return str(write_proof(directory, proof))
    except OSError:
        return ""


def write_proof(directory: Path, proof: bytes) -> Path:
    """Write a proof durably under a name made of its digest; return its path."""
    path = directory / f"misbehaviour-{content_digest(proof)[:16]}.txt"
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(proof)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    sync_directory(directory)
    return path

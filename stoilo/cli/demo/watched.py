"""The demo's monitor: what an outsider finds who follows the log and trusts its key alone."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from stoilo.audit.monitor.finding import Severity
from stoilo.audit.monitor.monitor import Monitor
from stoilo.audit.monitor.state import MonitorState
from stoilo.audit.read.source import open_source
from stoilo.cli.demo.auditor import read_log_policy

PATIENCE_S = 60.0
PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class WatchedLog:
    """What a monitor knows about a log."""

    size: int  # leaves that it hashed and inspected
    admissions: int  # how many of them are admissions
    unexplained: int  # admissions that no record explains
    seen: int  # checkpoints that executors saw, all of them compared
    alarms: tuple[str, ...]  # what it has to complain about


def watch_log(data: Path, url: str) -> WatchedLog:
    """Follow the log at `url` until every admission is explained, or patience ends.

    Args:
        data: the server's directory; only the release's log policy is read there.
        url: the server's HTTP address.
    """
    policy = read_log_policy(data / "keys")
    end = time.monotonic() + PATIENCE_S
    with tempfile.TemporaryDirectory() as folder:
        state = MonitorState.open(Path(folder))
        try:
            monitor = Monitor(open_source(url), policy, state, clock=time.time)
            monitor.poll()
            while state.count_open() and time.monotonic() < end:
                time.sleep(PAUSE_S)
                monitor.poll()
            return _report(state)
        finally:
            state.close()


def _report(state: MonitorState) -> WatchedLog:
    return WatchedLog(
        size=state.memory.size,
        admissions=state.count_admissions(),
        unexplained=state.count_open(),
        seen=state.memory.seen,
        alarms=tuple(
            finding.message
            for _, finding in state.findings()
            if finding.severity is not Severity.NOTICE
        ),
    )

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stoilo.audit.monitor.finding import Finding, MonitorSettings, parse_watches
from stoilo.audit.monitor.monitor import Monitor
from stoilo.audit.monitor.state import MonitorState
from stoilo.core.errors import UnreachableError
from tests.support.memory_log import MemoryLogSource


class Watcher:
    """A monitor of a log in memory, with a clock that a test moves."""

    def __init__(self, directory: Path) -> None:
        self.log = MemoryLogSource()
        self.directory = directory
        self.now = 1000
        self.settings = MonitorSettings()
        self.policy = self.log.key.policy
        self.state: MonitorState | None = None
        self.pages: dict[str, bytes] = {}

    def fetch(self, url: str, limit: int) -> bytes | None:
        """Answer as a witness does; an unknown address is out of reach."""
        if url not in self.pages:
            raise UnreachableError("STO-L002", "no answer")
        return self.pages[url][: limit + 1]

    def watch(self, *texts: str, **changes: Any) -> None:
        self.settings = MonitorSettings(parse_watches(texts), **changes)

    def monitor(self) -> Monitor:
        """Open the state (again) and return the monitor."""
        self.close()
        self.state = MonitorState.open(self.directory)
        return Monitor(
            self.log,
            self.policy,
            self.state,
            self.settings,
            clock=lambda: self.now,
            fetch=self.fetch,
        )

    def poll(self) -> list[Finding]:
        """Poll with a fresh process' eyes; return and forget what was found."""
        try:
            self.monitor().poll()
        finally:
            found = self.findings()
        return found

    def findings(self) -> list[Finding]:
        assert self.state is not None
        found = list(self.state.findings())
        for number, _ in found:
            self.state.forget_finding(number)
        return [finding for _, finding in found]

    def kinds(self) -> list[str]:
        return [finding.kind.value for finding in self.poll()]

    @property
    def size(self) -> int:
        assert self.state is not None
        return self.state.memory.size

    def close(self) -> None:
        if self.state is not None:
            self.state.close()
        self.state = None


@pytest.fixture
def watcher(tmp_path: Path) -> Iterator[Watcher]:
    made = Watcher(tmp_path / "state")
    yield made
    made.close()


@pytest.fixture
def filled(watcher: Watcher) -> Callable[[int], Watcher]:
    """Give a watcher that has seen a published log of so many explained admissions."""

    def fill(admissions: int) -> Watcher:
        for number in range(admissions):
            watcher.log.explain(watcher.log.admit(f"s{number}"))
        watcher.log.publish()
        watcher.poll()
        return watcher

    return fill

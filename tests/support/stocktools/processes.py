"""Processes that look like a project's daemons, with their pid files, and do nothing."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stoilo.server.engines.stock.installation.facts import short_host
from stoilo.server.engines.stock.project.config import read_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stoilo.server.engines.stock.project.config import Daemon

__all__ = ["DaemonProcesses"]

_SECONDS = "3600"


class DaemonProcesses:
    """One process for each daemon of a config.xml.

    Args:
        root: the project.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @classmethod
    @contextmanager
    def running(cls, root: Path) -> Iterator[DaemonProcesses]:
        """Run them until the end of the block, as ``bin/start --cron`` leaves them."""
        made = cls(root)
        try:
            made.start()
            yield made
        finally:
            for name in [*made._running]:
                made.kill(name)

    def start(self) -> None:
        """Start those that do not run, and note the time as ``bin/start`` does."""
        for daemon in read_config((self._root / "config.xml").read_bytes()).daemons:
            if daemon.pid_name not in self._running:
                self._start(daemon)
        (self._root / f"run_state_{short_host()}.xml").write_text("<run_state/>\n")

    def kill(self, pid_name: str, last_words: str = "") -> None:
        """Kill one with SIGKILL; its pid file stays, and what it had logged."""
        process = self._running.pop(pid_name)
        process.kill()
        process.wait()
        if last_words:
            name = pid_name.replace(".pid", ".log")
            log = self._root / f"log_{short_host()}" / name
            log.parent.mkdir(exist_ok=True)
            log.write_text(f"{last_words}\n")

    def _start(self, daemon: Daemon) -> None:
        sleep = shutil.which("sleep")
        assert sleep is not None
        process = subprocess.Popen([daemon.program, _SECONDS], executable=sleep)
        self._running[daemon.pid_name] = process
        folder = self._root / f"pid_{short_host()}"
        folder.mkdir(exist_ok=True)
        (folder / daemon.pid_name).write_text(f"{process.pid}\n")

"""Warm jails for a suite: one of each job and level, made when first needed."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from stoilo.core.levels import Level
from stoilo.sandbox.run import PROBE_JOB, TASK_JOB
from stoilo.sandbox.seccomp import Denied
from stoilo.sandbox.suite.programs import LIBRARIES
from stoilo.sandbox.supervisor import Jail

__all__ = ["VALIDATE_JOB", "SuiteJails"]

VALIDATE_JOB = "stoilo.sandbox.jobs.validate"


class SuiteJails:
    """Jails shared by all cases of a suite; thread-safe.

    Args:
        levels: what exists here, narrowest first.
        preload: modules for probes, besides each level's own.

    Attributes:
        levels: by name, in order.
    """

    def __init__(self, levels: Iterable[Level], preload: tuple[str, ...]) -> None:
        self.levels: Mapping[str, Level] = {level.name: level for level in levels}
        self.preload = preload
        self._open: dict[tuple[str, str, Denied], Jail] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every jail."""
        with self._lock:
            while self._open:
                self._open.popitem()[1].close()

    def task(self, level: str) -> Jail:
        """Return the jail for tasks: language and kernel layer."""
        return self._get(TASK_JOB, level, Denied.KILL)

    def validator(self, level: str) -> Jail:
        """Return the jail for validators: language and kernel layer."""
        return self._get(VALIDATE_JOB, level, Denied.KILL)

    def probe(self, level: str, denied: Denied) -> Jail:
        """Return the jail for plain programs: the kernel layer alone."""
        return self._get(PROBE_JOB, level, denied)

    def _get(self, job: str, level: str, denied: Denied) -> Jail:
        key = (job, level, denied)
        with self._lock:
            if key not in self._open:
                chosen = self.levels[level]
                preload = self._preload_for(chosen) if job == PROBE_JOB else ()
                self._open[key] = Jail(chosen, job, preload=preload, denied=denied)
            return self._open[key]

    def _preload_for(self, level: Level) -> tuple[str, ...]:
        """Return what probes at `level` find loaded; no library that it lacks."""
        absent = LIBRARIES - {name.partition(".")[0] for name in level.preload}
        return tuple(
            name for name in self.preload if name.partition(".")[0] not in absent
        )

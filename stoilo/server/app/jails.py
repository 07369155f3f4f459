"""The validators in jails: hostile code never runs in the server's process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from stoilo.policies.levels import load_level
from stoilo.sandbox.process.report import JailReport, JailStatus
from stoilo.sandbox.process.supervisor import Jail
from stoilo.server.validation.validators import JailAnswer, JailTrouble

if TYPE_CHECKING:
    from stoilo.core.limits import RunLimits
    from stoilo.server.validation.validators import Watch


VALIDATE_JOB = "stoilo.sandbox.process.validate_job"


def read_report(report: JailReport) -> JailAnswer:
    """Return what a validator's run came to.

    Whatever a program can do to itself is its researcher's fault: as our trouble it would
    be asked again, for ever.

    Raises:
        JailTrouble: ``STO-R042``, it says nothing about the validator.
    """
    if report.blames_host:
        raise JailTrouble("STO-R042", f"the validators' jail: {report.code}")
    if report.status is JailStatus.FINISHED:
        return JailAnswer(finished=True, frame=report.frame)
    return JailAnswer(finished=False, reason=report.detail or report.code)


NICENESS = 10
"""Of validators: calls of researchers and volunteers come before them on a full machine."""


class ValidatorJail:
    """`JailRunner` over one warm zygote of one level."""

    def __init__(self, level: str) -> None:
        self._jail = Jail(load_level(level), VALIDATE_JOB, niceness=NICENESS)

    def run(self, request: bytes, limits: RunLimits, watch: Watch) -> JailAnswer:
        """Run one validator call in a fresh fork."""
        return read_report(
            self._jail.run(
                request, limits, watch=lambda exchange: watch(exchange.cancel)
            )
        )

    def close(self) -> None:
        """End the zygote."""
        self._jail.close()


class ValidatorJails:
    """One jail a level, started when first needed; thread-safe.

    Args:
        start: makes the jail of a level; what takes long holds up that level only.
    """

    def __init__(self, start: Callable[[str], ValidatorJail] = ValidatorJail) -> None:
        self._start = start
        self._jails: dict[str, ValidatorJail] = {}
        self._lock = threading.Lock()
        self._starting: dict[str, threading.Lock] = {}

    def of(self, level: str) -> ValidatorJail:
        """Return the jail of `level`."""
        with self._lock:
            turn = self._starting.setdefault(level, threading.Lock())
        # Starting a jail takes seconds: only calls of the same level wait for it.
        with turn:
            if level not in self._jails:
                self._jails[level] = self._start(level)
            return self._jails[level]

    def close(self) -> None:
        """End every zygote; to be called when nobody asks any more."""
        for jail in self._jails.values():
            jail.close()
        self._jails.clear()

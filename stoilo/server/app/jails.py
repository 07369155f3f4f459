"""The gate and the validators in jails: hostile code never runs in the server's process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from stoilo.core.types import Verdict
from stoilo.policies.gate import GateRequest, verdict_key
from stoilo.policies.jailed import GATE_JOB, Gate
from stoilo.policies.levels import load_level
from stoilo.policies.policy import Policy
from stoilo.sandbox.process.report import JailReport, JailStatus
from stoilo.sandbox.process.supervisor import Jail
from stoilo.server.validation.validators import JailAnswer, JailTrouble

if TYPE_CHECKING:
    from stoilo.core.errors import StoiloError
    from stoilo.core.limits import RunLimits
    from stoilo.server.log.ports import SourceUnderReview
    from stoilo.server.validation.validators import Watch


VALIDATE_JOB = "stoilo.sandbox.process.validate_job"


class JailedJudge:
    """`Judge`: the gate in a jailed child of level pure, one warm zygote."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._jail = Jail(load_level("pure"), GATE_JOB)
        self._gate = Gate(self._jail)

    def _request(self, submission: SourceUnderReview) -> GateRequest:
        return GateRequest(
            source=submission.source,
            validator=submission.validator or None,
            entry=submission.entry,
            level=submission.level,
            policy=self._policy,
            validator_entries=submission.validator_entries,
            argument_types=submission.argument_types,
        )

    def key(self, submission: SourceUnderReview) -> str:
        """Return the gate's own key of the verdict."""
        return verdict_key(self._request(submission))

    def judge(self, submission: SourceUnderReview) -> Verdict:
        """Return the verdict on hostile source."""
        return self._gate.judge(self._request(submission))

    def judge_many(
        self, submissions: Sequence[SourceUnderReview]
    ) -> list[Verdict | StoiloError]:
        """Return a verdict or an error for each source of one researcher."""
        return self._gate.judge_many([self._request(one) for one in submissions])

    def close(self) -> None:
        """End the zygote."""
        self._jail.close()


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

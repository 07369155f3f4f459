"""The gate asked in a child of its own: a jailed one, or a plain one with limits.

The server judges in a jail, one child a verdict or a batch, with a cache before it; the jail
comes in as an argument, so that tests can hand in a broken one. `stoilo policy check` works
on any system, and its source is not hostile to its author: a plain child is enough there,
whose limits keep a bomb from taking the machine with it. Run as a module this file is that
child.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from stoilo.core.digests import Digest, content_digest
from stoilo.core.errors import InternalError, StoiloError
from stoilo.core.types import RunLimits, Verdict
from stoilo.policies.findings import FIRST_PLACE, make_finding
from stoilo.policies.gate import GateRequest, engine_digest, verdict_key
from stoilo.policies.wire import (
    ANSWER_BYTES,
    answer_requests,
    parse_answer,
    parse_answers,
    render_requests,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stoilo.sandbox.process.report import JailReport

GATE_JOB = "stoilo.policies.wire"

# What one verdict may cost; a source that needs more is refused (`STO-P054`)
GATE_LIMITS = RunLimits(
    cpu_s=5,
    wall_s=60,
    memory_bytes=512 * 1024 * 1024,
    result_bytes=ANSWER_BYTES,
    output_bytes=4096,
    threads=1,
)


# Most sources in one child; together they get what `GATE_LIMITS` gives to one
BATCH = 64

# Most bytes of sources in one child; a larger one is asked about by itself
BATCH_BYTES = 1024 * 1024

# A child may die with its zygote; one that dies so often has a source that breaks it
_CRASHES = 3


class GateJail(Protocol):
    """A jail running `GATE_JOB`; `stoilo.sandbox.process.supervisor.Jail` is one."""

    def run(
        self, request: bytes, limits: RunLimits, wall_s: float | None = None
    ) -> JailReport:
        """Run one request in a fresh child."""
        ...


class Gate:
    """Verdicts in a jail, each (source, policy, engine) judged once; thread-safe.

    Args:
        jail: runs `GATE_JOB`; closed by whoever made it.
        remembered: how many verdicts to keep.
    """

    def __init__(self, jail: GateJail, remembered: int = 4096) -> None:
        self._jail = jail
        self._remembered = remembered
        self._verdicts: OrderedDict[Digest, Verdict] = OrderedDict()
        self._lock = Lock()

    def judge(self, request: GateRequest) -> Verdict:
        """Return the verdict on `request`.

        Raises:
            UsageError: unknown level, names too long.
            InternalError: ``STO-P004``, the child did not answer or lied about it.
        """
        key = verdict_key(request)
        with self._lock:
            known = self._verdicts.get(key)
            if known is not None:
                self._verdicts.move_to_end(key)
                return known
        verdict, final = self._judge_in_jail(request)
        if not final:
            return verdict
        with self._lock:
            self._verdicts[key] = verdict
            while len(self._verdicts) > self._remembered:
                self._verdicts.popitem(last=False)
        return verdict

    def judge_many(
        self, requests: Sequence[GateRequest]
    ) -> list[Verdict | StoiloError]:
        """Return a verdict or an error for each request, several in one child.

        Only for requests of one researcher: a source that took over the child could
        answer for those that share it. What a batch does not answer, because its limits
        were hit or its child died, is asked about one by one.
        """
        found: list[Verdict | StoiloError] = []
        for group in _groups(requests):
            found += self._judge_group(group) or [self._judge_one(one) for one in group]
        return found

    def _judge_one(self, request: GateRequest) -> Verdict | StoiloError:
        try:
            return self.judge(request)
        except StoiloError as error:
            return error

    def _judge_group(
        self, group: Sequence[GateRequest]
    ) -> list[Verdict | StoiloError] | None:
        """Return what one child says of a group, None when it must be asked one by one."""
        if len(group) == 1:
            return None
        try:
            report = self._jail.run(render_requests(group), GATE_LIMITS)
            if report.status != "finished":
                return None
            return parse_answers(report.frame, group)
        except StoiloError:
            return None

    def _judge_in_jail(self, request: GateRequest) -> tuple[Verdict, bool]:
        """Return the verdict and whether it says something lasting about the source."""
        question = render_requests([request])
        for _ in range(_CRASHES):
            report = self._jail.run(question, GATE_LIMITS)
            if report.status == "finished":
                return parse_answer(report.frame, request), True
            if report.limit:
                return too_costly(request), report.limit != "wall_s"
            if report.status != "crashed":
                break
        else:
            return too_costly(request), False
        raise InternalError(
            "STO-P004",
            f"the gate's jail did not answer: {report.status}",
            hint="`stoilo sandbox selftest` says what this machine lacks",
        )


def _groups(requests: Sequence[GateRequest]) -> Iterator[list[GateRequest]]:
    """Cut `requests` into groups for one child each, in order."""
    group: list[GateRequest] = []
    size = 0
    for request in requests:
        cost = len(request.source) + len(request.validator or b"")
        if group and (len(group) == BATCH or size + cost > BATCH_BYTES):
            yield group
            group, size = [], 0
        group.append(request)
        size += cost
    if group:
        yield group


def too_costly(request: GateRequest) -> Verdict:
    """Return the refusal of a source whose check was killed by its limits."""
    message = "checking the source took more time or memory than any source may"
    hint = "shorten it; nested try/finally, long chains and huge literals cost most"
    return Verdict(
        admitted=False,
        level=request.level,
        lowest_level="",
        policy_digest=request.policy.digest,
        source_digest=content_digest(request.source),
        findings=(make_finding("STO-P054", FIRST_PLACE, message, hint),),
        engine_digest=engine_digest(),
    )


# The plain child ---------------------------------------------------------------------


_START_UP_BYTES = 512 * 1024 * 1024  # address space that the interpreter itself maps
_KEPT_ENVIRONMENT = ("PATH", "SYSTEMROOT", "TEMP", "TMP", "TMPDIR")
_OUT_OF_MEMORY = 70


def check_in_child(
    request: GateRequest, wall_s: float = float(GATE_LIMITS.wall_s)
) -> Verdict:
    """Return the verdict on `request`, judged in a child process.

    Args:
        request: what to judge.
        wall_s: seconds after which the source counts as too costly to check.

    Raises:
        UsageError: unknown level, names too long.
        InternalError: ``STO-P004``, the child died of something else than its limits.
    """
    environment = {
        name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ
    }
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-m", "stoilo.policies.jailed"],
            input=render_requests([request]),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            timeout=wall_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return too_costly(request)
    if done.returncode == 0:
        return parse_answer(done.stdout, request)
    if done.returncode < 0 or done.returncode == _OUT_OF_MEMORY:
        return too_costly(request)
    raise InternalError(
        "STO-P004",
        f"the checking process ended with status {done.returncode}",
        hint="run `python -I -m stoilo.policies.jailed` to see why it does not start",
    )


def _limit_process() -> None:
    """Lower this process's limits where the system has them."""
    try:
        import resource  # noqa: PLC0415 - POSIX only
    except ImportError:  # Windows: the parent's time limit remains
        return
    memory = _START_UP_BYTES + GATE_LIMITS.memory_bytes
    for limit, value in (
        (resource.RLIMIT_CPU, GATE_LIMITS.cpu_s),
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
    ):
        try:
            resource.setrlimit(limit, (value, value))
        except (ValueError, OSError):  # a lower hard limit is already in force
            continue


def _main() -> int:
    """Answer one request from stdin on stdout."""
    _limit_process()
    try:
        answer = answer_requests(sys.stdin.buffer.read())
    except MemoryError:
        return _OUT_OF_MEMORY
    sys.stdout.buffer.write(answer)
    return 0


if __name__ == "__main__":
    sys.exit(_main())

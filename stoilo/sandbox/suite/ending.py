"""How one run of a case ended, and whether that is what its header says."""

from __future__ import annotations

from dataclasses import dataclass

from stoilo.core.run_status import RunStatus
from stoilo.core.types import RunOutcome
from stoilo.sandbox.report import JailReport
from stoilo.sandbox.suite.case import Header, Stop

__all__ = [
    "Ending",
    "describe_expected",
    "from_outcome",
    "is_denied_by_kernel",
    "is_expected",
]

_SHOWN_CHARS = 200
_DENIALS = ("PermissionError", "OSError", "BlockingIOError", "FileNotFoundError")
"""How Python tells of a call that failed."""

_REASONS = ("Permission denied", "Operation not permitted")
"""How native libraries tell of it, in errors of their own."""


@dataclass(frozen=True, slots=True)
class Ending:
    """What is known of one run; texts are untrusted.

    Attributes:
        status: as `RunOutcome.status`, ``fault`` when the jail itself failed.
        layer: who decided, empty when the program ended by itself.
        codes: stable codes; the gate has one for each finding.
        limit: the limit that was hit.
        syscall: the call at which the kernel layer killed it.
        error: the reason.
        value: the returned value's encoded bytes.
        output: what was printed.
        verdict: a validator's answer.
    """

    status: str
    layer: str = ""
    codes: tuple[str, ...] = ()
    limit: str = ""
    syscall: str = ""
    error: str = ""
    value: bytes = b""
    output: str = ""
    verdict: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """Everything that came out of the run, to look for tokens in."""
        return (self.value.decode("latin-1"), self.output, self.error)

    def describe(self) -> str:
        """Return one line for people."""
        who = f" by {self.layer}" if self.layer else ""
        named = self.syscall or self.limit or self.verdict
        codes = " ".join(dict.fromkeys(filter(None, self.codes)))
        parts = [f"{self.status}{who}", codes, named, self.error[:_SHOWN_CHARS]]
        return ", ".join(filter(None, parts))


def from_outcome(outcome: RunOutcome, report: JailReport) -> Ending:
    """Return the ending of a run in a jail."""
    return Ending(
        status=outcome.status.value,
        layer=outcome.layer.value if outcome.layer else "",
        codes=(outcome.code,) if outcome.code else (),
        limit=outcome.limit,
        syscall=report.syscall,
        error=outcome.error,
        value=outcome.value or b"",
        output=outcome.output,
    )


def is_expected(header: Header, ending: Ending) -> bool:
    """Whether a run with every layer on ended as the header says."""
    if header.stopped_by is Stop.NONE:
        return ending.status == RunStatus.OK
    if header.code and header.code not in ending.codes:
        return False
    return _is_stopped(header, ending)


def _is_stopped(header: Header, ending: Ending) -> bool:
    match header.stopped_by:
        case Stop.KERNEL:
            return _is_denied(header, ending)
        case Stop.LIMITS if header.limit:
            return (ending.layer, ending.limit) == (Stop.LIMITS, header.limit)
        case Stop.VALIDATION:
            return header.verdict in {"", ending.verdict} and ending.verdict != "true"
        case Stop.LANGUAGE | Stop.LIMITS if not header.code:
            return ending.layer in {"", header.stopped_by}  # swallowed, without effect
        case _:
            return ending.layer == header.stopped_by


def _is_denied(header: Header, ending: Ending) -> bool:
    """Whether the kernel layer killed the run, or made the call fail politely."""
    if header.syscall:
        killed = ending.status == RunStatus.KILLED and ending.layer == Stop.KERNEL
        return killed and ending.syscall.startswith(header.syscall)
    if header.error:
        return ending.status == RunStatus.USER_ERROR and ending.error.startswith(
            header.error
        )
    return ending.status != RunStatus.REFUSED


def is_denied_by_kernel(ending: Ending) -> bool:
    """Whether a program that only the kernel layer holds really came up against it.

    One that fails before it tries anything would say nothing about that layer.
    """
    if ending.layer in {Stop.KERNEL, Stop.LIMITS}:
        return True
    return ending.error.startswith(_DENIALS) or any(
        reason in ending.error for reason in _REASONS
    )


def describe_expected(header: Header) -> str:
    """Return what the header asks for, as one line."""
    if header.stopped_by is Stop.NONE:
        return "ok, as in plain CPython"
    named = (header.code, header.syscall, header.limit, header.verdict, header.error)
    return ", ".join(filter(None, (f"stopped by {header.stopped_by}", *named)))

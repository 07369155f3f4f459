"""gRPC failures as our errors: the server's own code, or what we tried and saw."""

from __future__ import annotations

import time

import grpc

from stoilo.core.errors import (
    DeniedError,
    InternalError,
    PolicyRefusal,
    StoiloError,
    TrustError,
    UnreachableError,
    UsageError,
    UserCodeError,
    WaitError,
)
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.core.types import Finding, Severity

DETAIL_KEY = "stoilo-error-bin"
_FAMILIES: dict[str, type[StoiloError]] = {
    kind.family: kind
    for kind in (
        UsageError,
        PolicyRefusal,
        TrustError,
        UserCodeError,
        WaitError,
        UnreachableError,
        DeniedError,
        InternalError,
    )
}
_BUSY = frozenset({"STO-R008"})
"""What a server says that has its hands full."""
_LOST = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.ABORTED,
    }
)


class SourceRefused(PolicyRefusal):
    """The gate refused the source.

    Attributes:
        findings: what it found, with places in the task module.
    """

    def __init__(
        self, code: str, message: str, hint: str, findings: tuple[Finding, ...]
    ) -> None:
        super().__init__(code, message, hint=hint)
        self.findings = findings

    def __str__(self) -> str:
        """Return the message with one line a finding."""
        rows = [
            f"  line {row.line}:{row.column}  {row.message} [{row.code}]"
            + (f" - {row.hint}" if row.hint else "")
            for row in self.findings
        ]
        return "\n".join([super().__str__(), *rows])


def map_rpc_error(
    error: grpc.aio.AioRpcError, target: str, last_success: float | None
) -> StoiloError:
    """Return our error for a failed call to `target`.

    Args:
        error: as gRPC raised it; its detail bytes are untrusted.
        target: the address that was tried.
        last_success: monotonic time of the last answer, None when there was none.
    """
    detail = _read_detail(error)
    if detail is not None:
        return _from_detail(detail, error.code())
    status = error.code()
    if status in _LOST:
        return unreachable(target, last_success, _reason(error))
    if status is grpc.StatusCode.UNAUTHENTICATED:
        return DeniedError(
            "STO-C052",
            f"{target} does not know this token",
            hint="use the connection file of this server; tokens expire and can be revoked",
        )
    if status is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return UsageError(
            "STO-C053",
            f"a message to or from {target} was too large",
            hint="send large arrays as kwargs of their own, or split the task",
        )
    if status is grpc.StatusCode.UNIMPLEMENTED:
        return InternalError(
            "STO-C054",
            f"{target} does not offer this call",
            hint="client and server are of different versions, or it is another service",
        )
    return InternalError("STO-C055", f"{target} failed: {status.name.lower()}")


def unreachable(
    target: str, last_success: float | None, reason: str
) -> UnreachableError:
    """Return ``STO-C050`` with what was tried and when it last worked."""
    seen = (
        "it has not answered in this session"
        if last_success is None
        else f"it last answered {time.monotonic() - last_success:.0f} s ago"
    )
    return UnreachableError(
        "STO-C050",
        f"no answer from {target} ({reason}); {seen}",
        hint="is the server running (`stoilo up --data DIR`), and is the address right?",
    )


def is_lost(error: grpc.aio.AioRpcError) -> bool:
    """Whether nobody answered; any other failure is an answer."""
    return error.code() in _LOST


def is_retryable(error: StoiloError) -> bool:
    """Whether the same call may work a moment later."""
    return isinstance(error, UnreachableError) or error.code in _BUSY


def _reason(error: grpc.aio.AioRpcError) -> str:
    """Return a short reason from gRPC's text, without its internals."""
    text = (error.details() or "").lower()
    for sign, reason in (
        ("handshake", "the TLS handshake failed"),
        ("certificate", "its certificate is not the expected one"),
        ("refused", "connection refused"),
        ("dns", "the name does not resolve"),
        ("name resolution", "the name does not resolve"),
        ("reset", "the connection was lost"),
        ("socket closed", "the connection was lost"),
    ):
        if sign in text:
            return reason
    return str(error.code().name).lower().replace("_", " ")


def _read_detail(error: grpc.aio.AioRpcError) -> pb.ErrorDetail | None:
    for key, value in error.trailing_metadata() or ():
        if key == DETAIL_KEY and isinstance(value, bytes):
            try:
                return pb.ErrorDetail.FromString(value)
            except ValueError:  # protobuf's DecodeError is one
                return None
    return None


def _from_detail(detail: pb.ErrorDetail, status: grpc.StatusCode) -> StoiloError:
    if detail.findings:
        return SourceRefused(
            detail.code, detail.message, detail.hint, _findings(detail)
        )
    kind = UnreachableError if status in _LOST else _FAMILIES.get(detail.family)
    return (kind or InternalError)(detail.code, detail.message, hint=detail.hint)


def _findings(detail: pb.ErrorDetail) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            code=row.code,
            severity=Severity.WARNING if row.severity == "warning" else Severity.ERROR,
            line=row.line,
            column=row.column,
            end_line=row.end_line,
            end_column=row.end_column,
            message=row.message,
            hint=row.hint,
        )
        for row in detail.findings
    )

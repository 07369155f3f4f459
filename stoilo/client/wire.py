"""One gRPC channel: calls with deadlines, retried while a lost server may come back.

Failures become our errors: the server's own code, or what we tried and saw.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Any

import grpc

from stoilo.client.address import Address
from stoilo.core import tracing
from stoilo.core.digests import content_digest
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
from stoilo.core.rate_limit import RECONNECTING
from stoilo.core.rpc import (
    accounts_pb2_grpc,
    progress_pb2_grpc,
    reviews_pb2_grpc,
    tasks_pb2_grpc,
)
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.core.types import BOUNDS, Finding, Severity

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
UNKNOWN_CALL = "STO-C054"  # of a server that is older, or another service
_BUSY = frozenset({"STO-R008"})  # What a server says that has its hands full
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
        origins: of each line of that module where it was written; empty when unknown.
    """

    origins: tuple[str, ...] = ()

    def __init__(
        self, code: str, message: str, hint: str, findings: tuple[Finding, ...]
    ) -> None:
        super().__init__(code, message, hint=hint)
        self.findings = findings

    def __str__(self) -> str:
        """Return the message with one line a finding."""
        rows = [
            f"  {self._place_of(row)}  {row.message} [{row.code}]"
            + (f" - {row.hint}" if row.hint else "")
            for row in self.findings
        ]
        head = f"the gate refuses the source [{self.code}]"
        return "\n".join([head, *rows])

    def _place_of(self, row: Finding) -> str:
        own = self.origins[row.line - 1 : row.line]
        if any(own) and not row.message.startswith("in the validators"):
            return own[0]
        return f"line {row.line}:{row.column}"


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
            "STO-R001",
            f"{target} does not know this token",
            hint="use the connection file of this server; tokens expire and can be revoked",
        )
    if status is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return UsageError(
            "STO-C020",
            f"a message to or from {target} was too large",
            hint="send large arrays as kwargs of their own, or split the task",
        )
    if status is grpc.StatusCode.UNIMPLEMENTED:
        return InternalError(
            UNKNOWN_CALL,
            f"{target} does not offer this call",
            hint="client and server are of different versions, or it is another service",
        )
    return InternalError("STO-R034", f"{target} failed: {status.name.lower()}")


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


def read_detail(detail: pb.ErrorDetail) -> StoiloError:
    """Return the error of one task among many."""
    return _from_detail(detail, grpc.StatusCode.UNKNOWN)


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


logger = logging.getLogger("stoilo.client")

CALL_S = 30.0  # Deadline of one call, s (thesis: 30)
UPLOAD_BYTES = 256 * 1024  # larger pieces cost both sides fresh pages
TRANSFER_S = 600.0
WARN_EVERY_S = 30.0
MANY_CALLS = 64  # Calls in flight on one connection; more wait for their turn

Request = Any  # a protobuf message; its generated classes share no useful base


class Wire:
    """The server as this process sees it. Use it in the event loop that made it."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.last_success: float | None = None
        self._is_closed = False
        self._warned = float("-inf")
        self._channel = _open_channel(address)
        self._stub = tasks_pb2_grpc.TaskServiceStub(self._channel)  # type: ignore[no-untyped-call]  # generated
        self._others = (
            reviews_pb2_grpc.ReviewServiceStub(self._channel),  # type: ignore[no-untyped-call]  # generated
            accounts_pb2_grpc.AccountServiceStub(self._channel),  # type: ignore[no-untyped-call]  # generated
            progress_pb2_grpc.ProgressServiceStub(self._channel),  # type: ignore[no-untyped-call]  # generated
        )
        self._turns = asyncio.Semaphore(MANY_CALLS)
        self._metadata = (
            (("authorization", f"Bearer {address.token}"),) if address.token else ()
        )

    async def close(self) -> None:
        """Close the channel; calls in flight fail."""
        self._is_closed = True
        await self._channel.close()

    async def call(
        self,
        method: str,
        request: Request,
        *,
        timeout_s: float = CALL_S,
        traces: Sequence[str] = (),  # see `stoilo.core.tracing`
    ) -> Any:  # noqa: ANN401 - the method's own response
        """Make one attempt, of any service; raises our errors only."""
        named = (one for one in self._others if hasattr(one, method))
        stub = next(named, self._stub)
        async with self._turns:
            return await self._attempt(
                getattr(stub, method), request, timeout_s=timeout_s, traces=traces
            )

    async def call_patiently(
        self, method: str, request: Request, *, patience_s: float | None
    ) -> Any:  # noqa: ANN401 - the method's own response
        """Repeat an idempotent call while the server cannot be reached.

        Args:
            method: name of the RPC.
            request: the same message every time.
            patience_s: how long to go on, s; None = as long as the caller waits.
        """
        return await self.be_patient(
            lambda: self.call(method, request), patience_s=patience_s
        )

    async def be_patient(
        self, attempt: Callable[[], Any], *, patience_s: float | None
    ) -> Any:  # noqa: ANN401 - what the attempt gives
        """Await `attempt()` again and again until it is answered."""
        backoff = RECONNECTING()
        began = time.monotonic()
        while True:
            try:
                return await attempt()
            except StoiloError as error:
                now = time.monotonic()
                pause = backoff.next_pause()
                over = patience_s is not None and now + pause - began > patience_s
                if not is_retryable(error) or over:
                    raise
                if now - max(began, self._warned) >= WARN_EVERY_S:
                    self._warned = now  # for all calls that wait on this connection
                    logger.warning("%s; still trying, nothing is lost", error.message)
            await asyncio.sleep(pause)

    async def upload(
        self, digest: str, data: bytes, *, patience_s: float | None
    ) -> str:
        """Upload the blob of that digest and return it."""

        async def attempt() -> None:
            async with self._turns:
                await self._attempt(
                    self._stub.UploadBlob, _chunks(digest, data), timeout_s=TRANSFER_S
                )

        await self.be_patient(attempt, patience_s=patience_s)
        return digest

    async def download(self, digest: str, *, patience_s: float | None) -> bytes:
        """Download one blob and check it.

        Raises:
            TrustError: ``STO-C056`` when the bytes are not those of the name.
        """

        async def attempt() -> bytes:
            async with self._turns:
                return await self._collect(digest)

        data: bytes = await self.be_patient(attempt, patience_s=patience_s)
        if content_digest(data) != digest:
            raise TrustError(
                "STO-C056", "a downloaded result is not what its name says"
            )
        return data

    async def _collect(self, digest: str) -> bytes:
        request = pb.DownloadBlobRequest(digest=digest)
        parts, size = list[bytes](), 0
        stream = self.stream("DownloadBlob", request, timeout_s=TRANSFER_S)
        async with aclosing(stream) as messages:
            async for message in messages:
                parts.append(message.data)
                size += len(message.data)
                if size > BOUNDS.value_bytes:
                    raise TrustError("STO-C056", "a downloaded result is too large")
        return b"".join(parts)

    async def stream(
        self, method: str, request: Request, *, timeout_s: float
    ) -> AsyncGenerator[Any, None]:
        """Yield the messages of one call; closing it ends the call."""
        with self._own_errors():
            call = getattr(self._stub, method)(
                request, timeout=timeout_s, metadata=self._metadata
            )
            try:
                async for message in call:
                    yield message
            finally:
                call.cancel()

    async def _attempt(
        self,
        method: Any,  # noqa: ANN401 - generated stubs are untyped
        request: Any,  # noqa: ANN401 - same
        *,
        timeout_s: float,
        traces: Sequence[str] = (),
    ) -> Any:  # noqa: ANN401 - same
        metadata = (*self._metadata, *tracing.headers(traces))
        with self._own_errors():
            return await method(request, timeout=timeout_s, metadata=metadata)

    @contextmanager
    def _own_errors(self) -> Iterator[None]:
        """Let a call's failure come out as our error, without gRPC's frames."""
        self._check_open()
        try:
            yield
        except grpc.aio.AioRpcError as error:
            raise self._mapped(error) from None
        except asyncio.CancelledError:  # also gRPC's word for a channel that was closed
            if not ((task := asyncio.current_task()) and task.cancelling()):
                self._check_open()
            raise
        self.last_success = time.monotonic()

    def _check_open(self) -> None:
        if self._is_closed:
            closed = f"this connection to {self.address.target} is closed"
            hint = "connect again; restore_task(task_id) finds what was submitted"
            raise UsageError("STO-C042", closed, hint=hint) from None

    def _mapped(self, error: grpc.aio.AioRpcError) -> StoiloError:
        if not is_lost(error):
            self.last_success = time.monotonic()
        return map_rpc_error(error, self.address.target, self.last_success)


def _open_channel(address: Address) -> grpc.aio.Channel:
    options = (
        ("grpc.max_send_message_length", BOUNDS.rpc_message_bytes),
        ("grpc.max_receive_message_length", BOUNDS.rpc_answer_bytes),
        ("grpc.enable_retries", 0),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2000),
        ("grpc.enable_http_proxy", 0),
    )
    if address.ca is None:
        return grpc.aio.insecure_channel(address.target, options=options)
    credentials = grpc.ssl_channel_credentials(root_certificates=address.ca)
    return grpc.aio.secure_channel(address.target, credentials, options=options)


async def _chunks(digest: str, data: bytes) -> AsyncIterator[pb.UploadBlobRequest]:
    view = memoryview(data)
    yield pb.UploadBlobRequest(
        digest=digest, size=len(data), data=bytes(view[:UPLOAD_BYTES])
    )
    for start in range(UPLOAD_BYTES, len(data), UPLOAD_BYTES):
        yield pb.UploadBlobRequest(data=bytes(view[start : start + UPLOAD_BYTES]))

"""One gRPC channel: calls with deadlines, retried while a lost server may come back."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from stoilo.client.address import Address
from stoilo.client.rpcerrors import is_lost, is_retryable, map_rpc_error
from stoilo.core.digests import content_digest
from stoilo.core.errors import StoiloError, TrustError
from stoilo.core.limits import BOUNDS
from stoilo.core.rate_limit import RECONNECTING
from stoilo.core.rpc import reviews_pb2_grpc, tasks_pb2_grpc
from stoilo.core.rpc import tasks_pb2 as pb

logger = logging.getLogger("stoilo.client")

CALL_S = 30.0
"""Deadline of one call, s (thesis: 30)."""

UPLOAD_BYTES = 1024 * 1024
TRANSFER_S = 600.0
WARN_EVERY_S = 30.0
MANY_CALLS = 64
"""Calls in flight on one connection; more wait for their turn."""

Request = Any  # a protobuf message; its generated classes share no useful base


class Wire:
    """The server as this process sees it. Use it in the event loop that made it."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.last_success: float | None = None
        self._warned = float("-inf")
        self._channel = _open_channel(address)
        self._stub = tasks_pb2_grpc.TaskServiceStub(self._channel)  # type: ignore[no-untyped-call]  # generated
        self._reviews = reviews_pb2_grpc.ReviewServiceStub(self._channel)  # type: ignore[no-untyped-call]  # generated
        self._turns = asyncio.Semaphore(MANY_CALLS)
        self._metadata = (
            (("authorization", f"Bearer {address.token}"),) if address.token else ()
        )

    async def close(self) -> None:
        """Close the channel; calls in flight fail."""
        await self._channel.close()

    async def call(
        self, method: str, request: Request, *, timeout_s: float = CALL_S
    ) -> Any:  # noqa: ANN401 - the method's own response
        """Make one attempt, of either service; raises our errors only."""
        stub = self._reviews if hasattr(self._reviews, method) else self._stub
        async with self._turns:
            return await self._attempt(
                getattr(stub, method), request, timeout_s=timeout_s
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

    async def upload(self, data: bytes, *, patience_s: float | None) -> str:
        """Upload one blob and return its digest."""
        digest = content_digest(data)

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
        stream = self._stub.DownloadBlob(
            request, timeout=TRANSFER_S, metadata=self._metadata
        )
        parts = bytearray()
        try:
            async for message in stream:
                parts += message.data
                if len(parts) > BOUNDS.value_bytes:
                    stream.cancel()
                    raise TrustError("STO-C056", "a downloaded result is too large")
        except grpc.aio.AioRpcError as error:
            raise self._mapped(error) from None
        self.last_success = time.monotonic()
        return bytes(parts)

    async def _attempt(self, method: Any, request: Any, *, timeout_s: float) -> Any:  # noqa: ANN401 - generated stubs are untyped
        try:
            response = await method(request, timeout=timeout_s, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise self._mapped(error) from None
        self.last_success = time.monotonic()
        return response

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

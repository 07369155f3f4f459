"""The gRPC server of the researchers' interface: its bounds, its health, its port."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from stoilo.core.rpc import (
    accounts_pb2_grpc,
    progress_pb2_grpc,
    reviews_pb2_grpc,
    tasks_pb2_grpc,
)
from stoilo.core.types import BOUNDS
from stoilo.server.admission.tokens import Authenticator
from stoilo.server.api.intake import Intake, IntakeBounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stoilo.server.api.accounts import AccountService
    from stoilo.server.api.progress import ProgressService
    from stoilo.server.api.service import ReviewService, TaskService
    from stoilo.server.tls import TlsFiles


SERVICE_NAMES = (
    "stoilo.v1.TaskService",
    "stoilo.v1.ReviewService",
    "stoilo.v1.AccountService",
    "stoilo.v1.ProgressService",
)

CONNECTION_OPTIONS = (
    ("grpc.max_allowed_incoming_connections", 1024),
    ("grpc.max_concurrent_streams", 128),
    # Bytes of a stream that come before anybody asks for them; the probe would raise
    # that to MiB for whoever has a fast network.
    ("grpc.http2.lookahead_bytes", 32 * 1024),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 600_000),
    ("grpc.keepalive_time_ms", 60_000),  # finds peers that are gone
    ("grpc.keepalive_timeout_ms", 20_000),
)
"""What one connection may have of the server before anybody knows who it is."""


def bind_grpc(
    service: TaskService,
    address: str,
    tls: TlsFiles | None,
    reviews: ReviewService | None = None,
    interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
    bounds: IntakeBounds | None = None,
    accounts: AccountService | None = None,
    progress: ProgressService | None = None,
) -> tuple[grpc.aio.Server, int]:
    """Return a gRPC server with health and its bound port; must run in the event loop.

    `tls` None is for tests on loopback only; `stoilo up` always has TLS.
    Raises ``RuntimeError`` when the port is taken (gRPC's own).
    """
    authenticator = Authenticator(service.store, service.clock)
    intake = Intake(authenticator, service.early, bounds or IntakeBounds())
    server = grpc.aio.server(
        interceptors=(*interceptors, intake),
        options=[
            ("grpc.max_receive_message_length", BOUNDS.rpc_message_bytes),
            ("grpc.max_send_message_length", BOUNDS.rpc_answer_bytes),
            ("grpc.so_reuseport", 0),
            *CONNECTION_OPTIONS,
        ],
    )
    tasks_pb2_grpc.add_TaskServiceServicer_to_server(service, server)  # type: ignore[no-untyped-call]  # generated
    if reviews is not None:
        reviews_pb2_grpc.add_ReviewServiceServicer_to_server(reviews, server)  # type: ignore[no-untyped-call]  # generated
    if accounts is not None:
        accounts_pb2_grpc.add_AccountServiceServicer_to_server(accounts, server)  # type: ignore[no-untyped-call]  # generated
    if progress is not None:
        progress_pb2_grpc.add_ProgressServiceServicer_to_server(progress, server)  # type: ignore[no-untyped-call]  # generated
    checks = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    if tls is None:
        port = server.add_insecure_port(address)
    else:
        credentials = grpc.ssl_server_credentials([(tls.key, tls.certificate)])
        port = server.add_secure_port(address, credentials)
    server.stoilo_health = checks
    return server, port


def tell_health(server: grpc.aio.Server, ready: bool) -> None:
    """Let gRPC's health service say what readiness says; for the event loop."""
    task = asyncio.ensure_future(set_serving(server, serving=ready))
    server.stoilo_telling = task  # or it could be collected before it has run


async def set_serving(server: grpc.aio.Server, *, serving: bool) -> None:
    """Tell health checkers whether calls are welcome."""
    states = health_pb2.HealthCheckResponse
    state = states.SERVING if serving else states.NOT_SERVING
    for name in ("", *SERVICE_NAMES):
        await server.stoilo_health.set(name, state)

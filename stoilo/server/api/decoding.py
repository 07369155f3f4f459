"""Bytes that are no message of ours: refused with a code, before any handler (I5).

gRPC's own answer to a message that cannot be parsed is a status without our code and a
traceback in the log, so the generated handlers are given parsers that never raise.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.message import DecodeError

from stoilo.core.errors import UsageError
from stoilo.core.rpc import reviews_pb2_grpc, tasks_pb2_grpc
from stoilo.server.api.service import fail

if TYPE_CHECKING:
    from stoilo.server.api.review_service import ReviewService
    from stoilo.server.api.service import TaskService


SERVICE_NAME = "stoilo.v1.TaskService"
REVIEW_SERVICE_NAME = "stoilo.v1.ReviewService"
Context = Any  # grpc.aio.ServicerContext has no usable types
Handler = Any  # grpc's record of parsers and a method, without types


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """Stands for a message that could not be parsed."""


class _Handlers:
    """Takes the generated handlers where a server would."""

    def __init__(self) -> None:
        self.by_method: dict[str, Handler] = {}

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Part of gRPC's server; the table comes by the other method."""

    def add_registered_method_handlers(
        self, service: str, handlers: Mapping[str, Handler]
    ) -> None:
        """Keep the table."""
        del service
        self.by_method.update(handlers)


def add_task_service(service: TaskService, server: grpc.aio.Server) -> None:
    """Register `service`; unreadable messages end in ``STO-R017``."""
    generated = _Handlers()
    tasks_pb2_grpc.add_TaskServiceServicer_to_server(  # type: ignore[no-untyped-call]  # generated
        service, generated
    )
    _add(generated, SERVICE_NAME, server)


def add_review_service(service: ReviewService, server: grpc.aio.Server) -> None:
    """Register the reviewers' `service` in the same way."""
    generated = _Handlers()
    reviews_pb2_grpc.add_ReviewServiceServicer_to_server(  # type: ignore[no-untyped-call]  # generated
        service, generated
    )
    _add(generated, REVIEW_SERVICE_NAME, server)


def _add(generated: _Handlers, name: str, server: grpc.aio.Server) -> None:
    handlers = {name: _guard(one) for name, one in generated.by_method.items()}
    generic = grpc.method_handlers_generic_handler(name, handlers)
    server.add_generic_rpc_handlers((generic,))


def _guard(handler: Handler) -> Handler:
    """Return `handler` with a parser that never raises."""
    parse = _parser(handler.request_deserializer)
    if handler.request_streaming:
        method = _guard_stream(handler.stream_unary)
        return handler._replace(request_deserializer=parse, stream_unary=method)
    if handler.response_streaming:
        method = _guard_answers(handler.unary_stream)
        return handler._replace(request_deserializer=parse, unary_stream=method)
    method = _guard_unary(handler.unary_unary)
    return handler._replace(request_deserializer=parse, unary_unary=method)


def _parser(parse: Callable[[bytes], object]) -> Callable[[bytes], object]:
    def total(data: bytes) -> object:
        try:
            return parse(data)
        except DecodeError:
            return _Unreadable()

    return total


def _error() -> UsageError:
    return UsageError("STO-R017", "the message cannot be read as this call's request")


def _guard_unary(method: Handler) -> Handler:
    async def call(request: object, context: Context) -> object:
        if isinstance(request, _Unreadable):
            await fail(context, _error())
        return await method(request, context)

    return call


def _guard_answers(method: Handler) -> Handler:
    async def call(request: object, context: Context) -> AsyncIterator[object]:
        if isinstance(request, _Unreadable):
            await fail(context, _error())
        async for answer in method(request, context):
            yield answer

    return call


def _guard_stream(method: Handler) -> Handler:
    async def readable(requests: AsyncIterator[object]) -> AsyncIterator[object]:
        async for request in requests:
            if isinstance(request, _Unreadable):
                raise _error()
            yield request

    async def call(requests: AsyncIterator[object], context: Context) -> object:
        return await method(readable(requests), context)

    return call

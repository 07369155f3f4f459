from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from stoilo.core.codec.skeleton import encode
from stoilo.core.digests import content_digest
from stoilo.core.errors import InternalError
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.core.rpc import tasks_pb2_grpc
from stoilo.server.admission import tokens
from stoilo.server.api import tasks
from stoilo.server.api.grpc_server import bind_grpc, set_serving
from stoilo.server.tls import ensure_tls
from tests.support.server import make_result
from tests.support.serverbench import SOURCE, Bench

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
Call = Callable[[Any], Awaitable[None]]


@asynccontextmanager
async def serving(bench: Bench) -> AsyncIterator[Any]:
    tls = ensure_tls(bench.directory / "tls", dt.datetime.now(dt.UTC))
    server, port = bind_grpc(bench.server.service, "127.0.0.1:0", tls)
    await server.start()
    await set_serving(server, serving=True)
    credentials = grpc.ssl_channel_credentials(tls.ca)
    async with grpc.aio.secure_channel(f"localhost:{port}", credentials) as channel:
        yield channel
    await server.stop(None)


def call(bench: Bench, work: Call) -> None:
    async def run() -> None:
        async with serving(bench) as channel:
            await work(channel)

    asyncio.run(run())


def metadata(bench: Bench) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {bench.token}")]


def detail(error: grpc.aio.AioRpcError) -> pb.ErrorDetail:
    trailing = dict(error.trailing_metadata())
    return pb.ErrorDetail.FromString(trailing["stoilo-error-bin"])


async def refused(
    awaitable: Awaitable[object],
) -> tuple[grpc.StatusCode, pb.ErrorDetail]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await awaitable
    return caught.value.code(), detail(caught.value)


def test_task_goes_through_tls_and_back(bench: Bench) -> None:
    async def work(channel: Any) -> None:
        stub = tasks_pb2_grpc.TaskServiceStub(channel)
        made = await stub.CreateTask(bench.request(), metadata=metadata(bench))
        assert made.level == "pure"
        bench.server.pipeline.run_once()
        name = f"{made.task_id}_1"
        statement = bench.statement(made.task_id)
        frame = {"status": "ok", "value": bench.request().arguments}
        files = [make_result(f"{name}_{n}", statement, frame) for n in (0, 1)]
        await asyncio.to_thread(bench.engine.deliver, name, files)
        polled = await stub.PollTask(
            pb.PollTaskRequest(task_id=made.task_id), metadata=metadata(bench)
        )
        assert (polled.state, polled.logged) == ("succeeded", True)

    call(bench, work)


def test_refusal_carries_findings_in_the_trailer(bench: Bench) -> None:
    async def work(channel: Any) -> None:
        stub = tasks_pb2_grpc.TaskServiceStub(channel)
        request = bench.request(task_module=b"import os\n" + SOURCE)
        status, said = await refused(stub.CreateTask(request, metadata=metadata(bench)))
        assert status is grpc.StatusCode.FAILED_PRECONDITION
        assert (said.code, said.family) == ("STO-R020", "policy")
        assert said.findings[0].code == "STO-P040"

    call(bench, work)


@pytest.mark.parametrize("header", ["", "Bearer ", "Bearer sto_x", "Basic abc"])
def test_caller_without_a_good_token_is_unauthenticated(
    bench: Bench, header: str
) -> None:
    async def work(channel: Any) -> None:
        stub = tasks_pb2_grpc.TaskServiceStub(channel)
        sent = [("authorization", header)] if header else []
        for method, request in (
            (stub.CreateTask, bench.request()),
            (stub.PollTask, pb.PollTaskRequest(task_id="x")),
            (stub.ListTasks, pb.ListTasksRequest()),
            (stub.CancelTask, pb.CancelTaskRequest(task_id="x")),
            (stub.RejectResult, pb.RejectResultRequest(task_id="x")),
            (stub.CreateTasks, pb.CreateTasksRequest(tasks=[bench.request()])),
        ):
            status, said = await refused(method(request, metadata=sent))
            assert status is grpc.StatusCode.UNAUTHENTICATED
            assert said.code == "STO-R001"

    call(bench, work)


def test_task_of_another_owner_is_not_found_for_all_calls(bench: Bench) -> None:
    async def work(channel: Any) -> None:
        stub = tasks_pb2_grpc.TaskServiceStub(channel)
        made = await stub.CreateTask(bench.request(), metadata=metadata(bench))
        with bench.store.write() as connection:
            bench.token = tokens.issue_token(
                connection, "eve", tokens.Role.OPERATOR, bench.clock()
            )
        for task_id in (made.task_id, "0" * 32, "x" * 100_000):
            for method, kind in (
                (stub.PollTask, pb.PollTaskRequest),
                (stub.CancelTask, pb.CancelTaskRequest),
                (stub.RejectResult, pb.RejectResultRequest),
            ):
                status, said = await refused(
                    method(kind(task_id=task_id), metadata=metadata(bench))
                )
                assert status is grpc.StatusCode.NOT_FOUND
                assert said.message == "no such task"
        listed = await stub.ListTasks(pb.ListTasksRequest(), metadata=metadata(bench))
        assert not listed.tasks

    call(bench, work)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, ["c", "b", "a"]),
        ({"limit": 1}, ["c"]),
        ({"label": "a"}, ["a"]),
        ({"states": ["cancelled"]}, ["b"]),
        ({"states": ["cancelled", "admitting"], "label": "c"}, ["c"]),
        ({"label": "x" * 128}, []),
    ],
    ids=str,
)
def test_tasks_are_listed_newest_first(
    bench: Bench, asked: dict[str, Any], found: list[str]
) -> None:
    async def work(channel: Any) -> None:
        stub = tasks_pb2_grpc.TaskServiceStub(channel)
        for label in "abc":
            bench.clock.now += 1
            request = bench.request(label=label, idempotency_key=label)
            made = await stub.CreateTask(request, metadata=metadata(bench))
            if label == "b":
                cancel = pb.CancelTaskRequest(task_id=made.task_id)
                await stub.CancelTask(cancel, metadata=metadata(bench))
        answer = await stub.ListTasks(
            pb.ListTasksRequest(**asked), metadata=metadata(bench)
        )
        assert [row.label for row in answer.tasks] == found

    call(bench, work)


@pytest.mark.parametrize("asked", [{"states": ["lost"]}, {"label": "x" * 129}], ids=str)
def test_list_by_what_no_task_has_is_refused(
    bench: Bench, asked: dict[str, Any]
) -> None:
    async def work(channel: Any) -> None:
        stub = tasks_pb2_grpc.TaskServiceStub(channel)
        _, said = await refused(
            stub.ListTasks(pb.ListTasksRequest(**asked), metadata=metadata(bench))
        )
        assert said.code == "STO-R010"

    call(bench, work)


def test_blob_goes_up_and_down_in_pieces(bench: Bench) -> None:
    data = encode(bytes(range(256)) * 4000)
    name = content_digest(data)

    async def pieces() -> AsyncIterator[pb.UploadBlobRequest]:
        yield pb.UploadBlobRequest(digest=name, size=len(data), data=data[:1000])
        yield pb.UploadBlobRequest(data=data[1000:])

    async def work(channel: Any) -> None:
        stub = tasks_pb2_grpc.TaskServiceStub(channel)
        await stub.UploadBlob(pieces(), metadata=metadata(bench))
        answer = stub.DownloadBlob(
            pb.DownloadBlobRequest(digest=name), metadata=metadata(bench)
        )
        assert b"".join([part.data async for part in answer]) == data
        made = await stub.CreateTask(
            bench.request(blobs=[name]), metadata=metadata(bench)
        )
        assert made.task_id

    call(bench, work)


def test_empty_upload_and_unknown_download_are_refused(bench: Bench) -> None:
    async def nothing() -> AsyncIterator[pb.UploadBlobRequest]:
        for request in ():
            yield request

    async def work(channel: Any) -> None:
        stub = tasks_pb2_grpc.TaskServiceStub(channel)
        status, said = await refused(
            stub.UploadBlob(nothing(), metadata=metadata(bench))
        )
        assert (status, said.code) == (grpc.StatusCode.INVALID_ARGUMENT, "STO-R010")
        answer = stub.DownloadBlob(
            pb.DownloadBlobRequest(digest="0" * 64), metadata=metadata(bench)
        )
        status, said = await refused(anext(aiter(answer)))
        assert (status, said.code) == (grpc.StatusCode.NOT_FOUND, "STO-R003")

    call(bench, work)


def test_oversized_and_malformed_messages_do_not_hurt(bench: Bench) -> None:
    async def work(channel: Any) -> None:
        raw = channel.unary_unary("/stoilo.v1.TaskService/CreateTask")
        for data in (b"\xff" * 100, b"x" * (5 * 1024 * 1024), b"\x0a\xff\xff\xff\x0f"):
            with pytest.raises(grpc.aio.AioRpcError):
                await raw(data, metadata=metadata(bench))
        stub = tasks_pb2_grpc.TaskServiceStub(channel)
        made = await stub.CreateTask(bench.request(), metadata=metadata(bench))
        assert made.task_id

    call(bench, work)


def test_unreadable_message_has_a_code_and_no_traceback(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(channel: Any) -> None:
        prefix = "/stoilo.v1.TaskService/"
        noise, sent = b"\xff" * 9, metadata(bench)
        for call in (
            channel.unary_unary(prefix + "PollTask")(noise, metadata=sent),
            channel.stream_unary(prefix + "UploadBlob")(iter([noise]), metadata=sent),
            channel.unary_stream(prefix + "DownloadBlob")(noise, metadata=sent).read(),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert detail(caught.value).code == "STO-R010"

    call(bench, work)
    assert not caplog.records


def test_inner_fault_shows_no_inside(bench: Bench) -> None:
    def explode(*_: object) -> None:
        raise KeyError("/secret/path")

    bench.server.desk.poll = explode  # type: ignore[assignment,method-assign]  # a fault

    async def work(channel: Any) -> None:
        stub = tasks_pb2_grpc.TaskServiceStub(channel)
        status, said = await refused(
            stub.PollTask(pb.PollTaskRequest(task_id="x"), metadata=metadata(bench))
        )
        assert (status, said.code) == (grpc.StatusCode.INTERNAL, "STO-R034")
        assert "secret" not in str(said)

    call(bench, work)


def test_full_disk_is_unavailable_with_its_code(bench: Bench) -> None:
    def full(*_: object) -> None:
        raise InternalError("STO-R030", "database or disk is full")

    bench.server.desk.cancel = full  # type: ignore[assignment,method-assign]  # a fault

    async def work(channel: Any) -> None:
        stub = tasks_pb2_grpc.TaskServiceStub(channel)
        status, said = await refused(
            stub.CancelTask(pb.CancelTaskRequest(task_id="x"), metadata=metadata(bench))
        )
        assert (status, said.code) == (grpc.StatusCode.UNAVAILABLE, "STO-R030")

    call(bench, work)


def test_health_says_serving_without_a_token(bench: Bench) -> None:
    async def work(channel: Any) -> None:
        stub = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service="stoilo.v1.TaskService")
        answer = await stub.Check(request)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING

    call(bench, work)


def test_owner_rejects_so_often_an_hour_and_not_what_runs(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "REJECTIONS_PER_HOUR", 2)

    async def work(channel: Any) -> None:
        stub = tasks_pb2_grpc.TaskServiceStub(channel)
        made = await stub.CreateTask(bench.request(), metadata=metadata(bench))
        request = pb.RejectResultRequest(task_id=made.task_id, reason="r" * 5000)
        for _ in range(2):
            answer = await stub.RejectResult(request, metadata=metadata(bench))
            assert answer.copies == 0
        status, said = await refused(
            stub.RejectResult(request, metadata=metadata(bench))
        )
        assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert said.code == "STO-T027"

    call(bench, work)

"""CreateTasks and WaitTasks: many tasks in one call, each with an answer of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from stoilo.core.codec.skeleton import encode
from stoilo.core.errors import InternalError
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.core.rpc import tasks_pb2_grpc
from stoilo.server.admission import tokens
from stoilo.server.api import service, waiting
from tests.server.api.test_service import call, metadata, refused
from tests.support.server import make_result
from tests.support.serverbench import SOURCE, Bench


def stub_of(channel: Any) -> Any:
    return tasks_pb2_grpc.TaskServiceStub(channel)


def requests(bench: Bench, count: int, **fields: Any) -> pb.CreateTasksRequest:
    made = [
        bench.request(f"k{n}", arguments=encode({"x": n}), **fields)
        for n in range(count)
    ]
    return pb.CreateTasksRequest(tasks=made)


async def create(bench: Bench, channel: Any, count: int = 3) -> list[str]:
    answer = await stub_of(channel).CreateTasks(
        requests(bench, count), metadata=metadata(bench)
    )
    return [one.task.task_id for one in answer.tasks]


def finish(bench: Bench, task_id: str) -> None:
    name, statement = f"{task_id}_1", bench.statement(task_id)
    frame = {"status": "ok", "value": encode(5)}
    files = [make_result(f"{name}_{n}", statement, frame) for n in (0, 1)]
    bench.engine.deliver(name, files)


def wait(bench: Bench, channel: Any, *task_ids: str) -> Any:
    request = pb.WaitTasksRequest(task_ids=task_ids)
    return stub_of(channel).WaitTasks(request, metadata=metadata(bench), timeout=30)


def test_tasks_of_one_call_share_every_step(bench: Bench) -> None:
    commits: list[object] = []
    insert = bench.server.submissions._storing._work
    bench.server.submissions._storing._work = lambda batch: (
        commits.append(len(batch)) or insert(batch)  # type: ignore[func-returns-value]  # noted
    )

    async def work(channel: Any) -> None:
        made = await create(bench, channel, 5)
        assert len(set(made)) == 5
        assert commits == [5]
        bench.server.pipeline.run_once()
        assert bench.engine.calls == 1
        assert sorted(bench.engine.specs) == sorted(f"{one}_1" for one in made)

    call(bench, work)


def test_same_keys_again_are_the_same_tasks(bench: Bench) -> None:
    async def work(channel: Any) -> None:
        assert await create(bench, channel) == await create(bench, channel)

    call(bench, work)


def test_each_request_has_its_own_answer(bench: Bench) -> None:
    async def work(channel: Any) -> None:
        asked = requests(bench, 3)
        asked.tasks[1].entry = "no name"
        asked.tasks[2].task_module = b"import os\n" + SOURCE
        answer = await stub_of(channel).CreateTasks(asked, metadata=metadata(bench))
        codes = [one.error.code for one in answer.tasks]
        assert codes == ["", "STO-R010", "STO-R020"]
        assert answer.tasks[0].task.level == "pure"
        assert answer.tasks[2].error.findings[0].code == "STO-P040"

    call(bench, work)


def test_call_that_creates_nothing_is_refused(bench: Bench) -> None:
    async def work(channel: Any) -> None:
        method, sent = stub_of(channel).CreateTasks, metadata(bench)
        bad = requests(bench, 2, entry="no name")
        many = requests(bench, service.MOST_CREATED + 1)
        for asked in (bad, pb.CreateTasksRequest(), many):
            status, said = await refused(method(asked, metadata=sent))
            assert (status, said.code) == (
                grpc.StatusCode.INVALID_ARGUMENT,
                "STO-R010",
            )

    call(bench, work)


def test_quota_holds_within_one_call(bench_maker: Any, tmp_path: Any) -> None:
    from stoilo.policies.policy import Quota  # noqa: PLC0415 - this test's own

    bench = bench_maker(tmp_path, quota=Quota(tasks_per_hour=2))

    async def work(channel: Any) -> None:
        answer = await stub_of(channel).CreateTasks(
            requests(bench, 3), metadata=metadata(bench)
        )
        assert [o.error.code for o in answer.tasks] == ["", "", "STO-R005"]

    call(bench, work)


def test_database_that_is_away_fails_the_whole_call(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(channel: Any) -> None:
        create_one = bench.server.submissions.create

        async def away(token: str, request: Any) -> Any:
            if request.idempotency_key == "k1":
                raise InternalError(service.AWAY, "the database is away")
            return await create_one(token, request)

        monkeypatch.setattr(bench.server.submissions, "create", away)
        asked, sent = requests(bench, 2), metadata(bench)
        status, said = await refused(stub_of(channel).CreateTasks(asked, metadata=sent))
        assert (status, said.code) == (grpc.StatusCode.UNAVAILABLE, service.AWAY)

    call(bench, work)


def test_tasks_are_told_of_once_they_are_final(bench: Bench) -> None:
    async def work(channel: Any) -> None:
        first, second, never = await create(bench, channel)
        bench.server.pipeline.run_once()
        await asyncio.to_thread(finish, bench, first)
        stream = wait(bench, channel, first, second, never)
        told = await stream.read()
        assert (told.task_id, told.state) == (first, "succeeded")
        assert told == await stub_of(channel).PollTask(
            pb.PollTaskRequest(task_id=first), metadata=metadata(bench)
        )
        reading = asyncio.ensure_future(stream.read())
        await asyncio.sleep(0.3)
        assert not reading.done()  # control: nothing of what goes on
        await asyncio.to_thread(finish, bench, second)
        assert (await reading).task_id == second
        stream.cancel()

    call(bench, work)


def test_task_of_another_owner_is_named_without_a_state(bench: Bench) -> None:
    async def work(channel: Any) -> None:
        (theirs,) = await create(bench, channel, 1)
        bench.server.pipeline.run_once()
        await asyncio.to_thread(finish, bench, theirs)
        with bench.store.write() as connection:
            bench.token = tokens.issue_token(
                connection, "eve", tokens.Role.RESEARCHER, bench.clock()
            )
        told = [one async for one in wait(bench, channel, theirs, "0" * 32)]
        assert {one.task_id for one in told} == {theirs, "0" * 32}
        assert all(one == pb.PollTaskResponse(task_id=one.task_id) for one in told)

    call(bench, work)


def test_large_answer_is_left_to_a_poll(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "SMALL_BYTES", 10)

    async def work(channel: Any) -> None:
        (made,) = await create(bench, channel, 1)
        bench.server.pipeline.run_once()
        await asyncio.to_thread(finish, bench, made)
        told = [one async for one in wait(bench, channel, made)]
        assert told == [pb.PollTaskResponse(task_id=made)]

    call(bench, work)


@pytest.mark.parametrize("count", [0, waiting.MOST_TASKS + 1])
def test_stream_for_none_or_too_many_is_refused(bench: Bench, count: int) -> None:
    async def work(channel: Any) -> None:
        stream = wait(bench, channel, *(f"{n:032}" for n in range(count)))
        status, said = await refused(stream.read())
        assert (status, said.code) == (grpc.StatusCode.INVALID_ARGUMENT, "STO-R010")

    call(bench, work)


@pytest.mark.parametrize("end", ["the server stops", "it lasted long enough"])
def test_stream_ends_by_itself(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    if end != "the server stops":
        monkeypatch.setattr(service, "LONGEST_WAIT_S", 0.2)

    async def work(channel: Any) -> None:
        (made,) = await create(bench, channel, 1)
        stream = wait(bench, channel, made)
        reading = asyncio.ensure_future(stream.read())
        await asyncio.sleep(0.1)
        assert not reading.done()
        if end == "the server stops":
            bench.server.service.ends.close()
        assert await asyncio.wait_for(reading, 5) is grpc.aio.EOF

    call(bench, work)


def test_one_question_serves_all_that_wait(bench: Bench) -> None:
    asked: list[int] = []

    async def work() -> None:
        ends = waiting.Ends(bench.store)
        find = ends._find_final
        ends._find_final = lambda tasks: (asked.append(len(tasks)), find(tasks))[1]
        works = [asyncio.ensure_future(ends.wait([f"{n:032}"])) for n in range(50)]
        await asyncio.sleep(0.2)
        ends.close()
        assert await asyncio.gather(*works) == [frozenset()] * 50

    asyncio.run(work())
    assert set(asked) == {50}
    assert 1 <= len(asked) <= 0.2 / waiting.FIRST_S


@pytest.mark.parametrize("told", [True, False])
def test_end_that_is_told_of_is_looked_for_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, told: bool
) -> None:
    monkeypatch.setattr(waiting, "LEAST_S", 600.0)
    monkeypatch.setattr(waiting, "MOST_S", 600.0)
    final = set[str]()

    async def run() -> bool:
        ends = waiting.Ends(bench.store)
        ends._find_final = final.intersection  # type: ignore[method-assign,assignment]
        work = asyncio.ensure_future(ends.wait(["x"]))
        await asyncio.sleep(0.2)  # the first question has found nothing
        final.add("x")
        if told:
            await asyncio.to_thread(ends.look)
        done, _ = await asyncio.wait([work], timeout=20.0 if told else 0.2)
        ends.close()
        await work
        return bool(done)

    assert asyncio.run(run()) is told


def test_failed_question_ends_every_wait(bench: Bench) -> None:
    def fail(_tasks: object) -> frozenset[str]:
        raise InternalError(service.AWAY, "the database is away")

    async def work() -> None:
        ends = waiting.Ends(bench.store)
        ends._find_final = fail
        works = [asyncio.ensure_future(ends.wait(["x"])) for _ in range(3)]
        found = await asyncio.gather(*works, return_exceptions=True)
        assert [getattr(one, "code", "") for one in found] == [service.AWAY] * 3

    asyncio.run(work())

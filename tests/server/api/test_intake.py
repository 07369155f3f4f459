from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from typing import Any

import grpc
import pytest

from stoilo.core.codec.skeleton import encode
from stoilo.core.errors import PolicyRefusal
from stoilo.core.fairqueue import Shares
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.core.rpc import tasks_pb2_grpc
from stoilo.policies.policy import Quota
from stoilo.server.admission import tokens
from stoilo.server.admission import tokens as auth
from stoilo.server.admission.fairness import WasteBounds
from stoilo.server.api import grpc_server
from stoilo.server.api.grpc_server import bind_grpc
from stoilo.server.api.intake import CallPace, Intake, IntakeBounds, Places, _Call
from tests.support.halfsent import HalfSender
from tests.support.serverbench import Bench

CREATE = "/stoilo.v1.TaskService/CreateTask"
CHECK = "/grpc.health.v1.Health/Check"
MIB = 1024 * 1024
TIGHT = IntakeBounds(held_bytes=4 * MIB, message_bytes=MIB)
LOOSE = IntakeBounds(held_bytes=2**40, calls_of_account=10**6, calls=10**6)
STREAMS = 40


@asynccontextmanager
async def served(bench: Bench, bounds: IntakeBounds) -> AsyncIterator[str]:
    server, port = bind_grpc(
        bench.server.service,
        "127.0.0.1:0",
        None,
        bench.server.review_service,
        (),
        bounds,
    )
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


def attack(
    bench: Bench,
    bounds: IntakeBounds,
    work: Callable[[HalfSender], Any],
    token: str | None = None,
) -> Any:
    """Do `work` with half-sent streams, in a thread beside the server."""

    async def run() -> Any:
        async with served(bench, bounds) as address:
            said = bench.token if token is None else token
            with await asyncio.to_thread(HalfSender, address, "", said) as sender:
                return await asyncio.to_thread(work, sender)

    return asyncio.run(run())


def let_in(method: str = CREATE) -> Callable[[HalfSender], tuple[int, int]]:
    """Return what half-sends a MiB on each stream and counts bytes and ended streams."""

    def work(sender: HalfSender) -> tuple[int, int]:
        sender.begin(method, STREAMS)
        sender.push_until_stuck(MIB - 1)
        return sender.total, len(sender.ended)

    return work


@contextmanager
def default_windows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """gRPC's own windows, as they were before."""
    with monkeypatch.context() as patch:
        patch.setattr(grpc_server, "CONNECTION_OPTIONS", ())
        yield


@pytest.mark.parametrize(("bounds", "grows"), [(TIGHT, False), (LOOSE, True)])
def test_half_sent_messages_of_an_account_have_bounded_room(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, bounds: IntakeBounds, grows: bool
) -> None:
    with default_windows(monkeypatch) if grows else nullcontext():
        total, _ = attack(bench, bounds, let_in())
    windows = STREAMS * 32 * 1024
    assert (total > TIGHT.held_bytes + windows) is grows
    assert not grows or total > STREAMS * (MIB - 1024)


@pytest.mark.parametrize("token", ["", "sto_x", "x" * 5000])
def test_stranger_is_refused_before_his_message_is_read(
    bench: Bench, token: str
) -> None:
    total, ended = attack(bench, LOOSE, let_in(), token)
    assert ended == STREAMS
    assert total < MIB


def test_half_sent_health_checks_have_bounded_room(bench: Bench) -> None:
    total, _ = attack(bench, TIGHT, let_in(CHECK), "")
    assert total < TIGHT.held_bytes + STREAMS * 32 * 1024


def test_account_without_quota_is_refused_before_its_message_is_read(
    tmp_path: Any, bench_maker: Callable[..., Bench]
) -> None:
    bench = bench_maker(tmp_path, Quota(tasks_per_hour=0))
    total, ended = attack(bench, LOOSE, let_in())
    assert (ended, total < MIB) == (STREAMS, True)


def test_message_that_does_not_come_ends_with_a_code(bench: Bench) -> None:
    bounds = IntakeBounds(message_s=0.2)

    def work(sender: HalfSender) -> int:
        sender.begin(CREATE, 3)
        sender.push_until_stuck(MIB - 1, patience=60)
        return len(sender.ended)

    assert attack(bench, bounds, work) == 3


async def refused(awaitable: Any) -> pb.ErrorDetail:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await awaitable
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    trailing = dict(caught.value.trailing_metadata())
    return pb.ErrorDetail.FromString(trailing["stoilo-error-bin"])


def test_account_over_its_calls_is_refused_and_another_is_served(bench: Bench) -> None:
    with bench.store.write() as connection:
        other = tokens.issue_token(
            connection, "bob", tokens.Role.RESEARCHER, bench.clock()
        )

    async def run() -> None:
        async with served(bench, IntakeBounds(calls_of_account=8)) as address:
            with await asyncio.to_thread(HalfSender, address, "", bench.token) as held:
                held.begin(CREATE, 8)
                await asyncio.to_thread(held.push_until_stuck, 1000)
                async with grpc.aio.insecure_channel(address) as channel:
                    stub = tasks_pb2_grpc.TaskServiceStub(channel)
                    mine = [("authorization", f"Bearer {bench.token}")]
                    call = stub.CreateTask(bench.request(), metadata=mine)
                    assert (await refused(call)).code == "STO-R008"
                    theirs = [("authorization", f"Bearer {other}")]
                    made = await stub.CreateTask(bench.request(), metadata=theirs)
                    assert made.task_id

    asyncio.run(run())


def test_caller_who_hangs_up_leaves_his_places_and_his_room(bench: Bench) -> None:
    async def run() -> None:
        async with served(bench, IntakeBounds(calls_of_account=8)) as address:
            with await asyncio.to_thread(HalfSender, address, "", bench.token) as held:
                held.begin(CREATE, 8)
                await asyncio.to_thread(held.push_until_stuck, 1000)
            async with grpc.aio.insecure_channel(address) as channel:
                stub = tasks_pb2_grpc.TaskServiceStub(channel)
                mine = [("authorization", f"Bearer {bench.token}")]
                for _ in range(200):  # it is not noticed at once
                    try:
                        await stub.CreateTask(bench.request(), metadata=mine)
                    except grpc.aio.AioRpcError:
                        await asyncio.sleep(0.05)
                    else:
                        return
                pytest.fail("the places stay taken")

    asyncio.run(run())


def test_places_are_bounded_in_all_and_come_back() -> None:
    places = Places(IntakeBounds(calls=2, calls_of_account=2))
    with places.one(1), places.one(2), pytest.raises(PolicyRefusal, match="STO-R008"):
        places.one(3).__enter__()
    with places.one(3), places.one(3), pytest.raises(PolicyRefusal, match="STO-R008"):
        places.one(3).__enter__()


def test_calls_beyond_a_burst_go_on_at_a_steady_pace_each_account_its_own() -> None:
    pace = CallPace(per_s=10.0, burst=5)
    waits = [pace.delay(1, 100.0) for _ in range(8)]
    assert waits == pytest.approx([0, 0, 0, 0, 0, 0, 0.1, 0.2])
    assert pace.delay(2, 100.0) == 0
    assert pace.delay(1, 200.0) == 0


class Answering:
    """A unary method with an answer of some size; counts how often it is made."""

    def __init__(self, size: int) -> None:
        self.made, self._size = 0, size

    async def __call__(self, request: object, context: object) -> pb.PollTaskResponse:
        del request, context
        self.made += 1
        return pb.PollTaskResponse(value=b"v" * self._size)


class WritingContext:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written: list[Any] = []

    async def write(self, message: object) -> None:
        self.written.append(message)


async def one_message() -> AsyncIterator[bytes]:
    yield pb.PollTaskRequest(task_id="x").SerializeToString()


async def answer_of(method: Answering, intake: Intake) -> WritingContext:
    handler = grpc.unary_unary_rpc_method_handler(
        method, pb.PollTaskRequest.FromString, pb.PollTaskResponse.SerializeToString
    )
    context = WritingContext()

    async def found(_: object) -> object:
        return handler

    taken = await intake.intercept_service(found, HealthCheck())
    await taken.stream_stream(one_message(), context)
    return context


class HealthCheck:
    """What gRPC says of a call."""

    method = CHECK


@pytest.mark.parametrize(("size", "made"), [(100, 1), (3 * MIB, 2)])
def test_large_answer_is_made_once_there_is_room_for_it(size: int, made: int) -> None:
    intake = Intake(None, {}, IntakeBounds(held_bytes=8 * MIB))  # type: ignore[arg-type]  # not asked
    method = Answering(size)
    context = asyncio.run(answer_of(method, intake))
    assert (method.made, len(context.written)) == (made, 1)
    assert intake.room.held == 0


class Slow:
    """A method that waits until it may go on; counts how many are at work."""

    def __init__(self) -> None:
        self.at_work = 0
        self.go_on = asyncio.Event()

    async def __call__(self, request: object, context: object) -> pb.PollTaskResponse:
        del request, context
        self.at_work += 1
        await self.go_on.wait()
        return pb.PollTaskResponse()


@pytest.mark.parametrize(("slots", "at_work"), [(3, 2), (50, 20)])
def test_account_does_not_have_every_thread_at_work(slots: int, at_work: int) -> None:
    async def run() -> int:
        shares = Shares(slots=slots, busy_above=1.0, half_life_s=10.0)
        intake = Intake(None, {}, IntakeBounds(at_work=shares))  # type: ignore[arg-type]  # not asked
        method = Slow()
        mine = intake._in_turn(method, 1)
        calls = [asyncio.create_task(mine(None, None)) for _ in range(20)]
        await asyncio.sleep(0.01)
        found = method.at_work
        calls.append(asyncio.create_task(intake._in_turn(method, 2)(None, None)))
        await asyncio.sleep(0.01)
        assert method.at_work == found + 1
        method.go_on.set()
        await asyncio.gather(*calls)
        return found

    assert asyncio.run(run()) == at_work


def test_refusals_by_a_calls_head_are_paced_and_others_are_not(
    tmp_path: Any, bench_maker: Callable[..., Bench]
) -> None:
    bench = bench_maker(tmp_path, Quota(tasks_per_hour=0))
    bounds = IntakeBounds(refusals_per_s=0.001, refusals_burst=5)

    def work(sender: HalfSender) -> int:
        sender.begin(CREATE, STREAMS)
        sender.push_until_stuck(MIB - 1)
        return len(sender.ended)

    assert attack(bench, bounds, work) in {5, 6}


STRICT = WasteBounds(above=2 * MIB, half_life_s=1e6, bytes_per_s=1.0)
"""With 3 MiB for nothing the next message is read, and none after it."""
NO_VALUE = b"#" * (MIB - 1024)
VALUE = encode({"x": bytes(MIB - 1024)})


async def answered(
    bench: Bench, stub: Any, arguments: bytes, token: str, enough: int
) -> int:
    """Send 8 requests one after the other; return how many are answered."""
    done, reached = 0, asyncio.Event()

    async def send() -> None:
        nonlocal done
        for number in range(8):
            request = bench.request(f"k{number}", arguments=arguments)
            with suppress(grpc.aio.AioRpcError):
                await stub.CreateTask(
                    request, metadata=[("authorization", f"Bearer {token}")]
                )
            done += 1
            if done == enough:
                reached.set()

    sending = asyncio.create_task(send())
    await reached.wait()
    await asyncio.wait([sending], timeout=0.3)
    sending.cancel()
    return done


@pytest.mark.parametrize(
    ("arguments", "waste", "read"),
    [
        (NO_VALUE, STRICT, 4),
        (NO_VALUE, WasteBounds(above=2**40), 8),
        (VALUE, STRICT, 8),
    ],
    ids=["refused", "refused without the bound", "taken"],
)
def test_account_whose_messages_are_refused_is_read_slowly_and_another_is_not(
    bench: Bench, arguments: bytes, waste: WasteBounds, read: int
) -> None:
    with bench.store.write() as connection:
        other = auth.issue_token(connection, "bob", auth.Role.RESEARCHER, bench.clock())

    async def run() -> None:
        async with (
            served(bench, IntakeBounds(waste=waste)) as address,
            grpc.aio.insecure_channel(address) as channel,
        ):
            stub = tasks_pb2_grpc.TaskServiceStub(channel)
            found = await answered(bench, stub, arguments, bench.token, read)
            assert found == read
            assert await answered(bench, stub, encode({"x": 1}), other, 8) == 8

    asyncio.run(run())


class EndedContext:
    """Says how its call ended."""

    def __init__(self, status: grpc.StatusCode) -> None:
        self._status = status

    def code(self) -> grpc.StatusCode:
        return self._status


@pytest.mark.parametrize(
    ("status", "account", "counted"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, 1, True),
        (grpc.StatusCode.INTERNAL, 1, False),
        (grpc.StatusCode.UNAVAILABLE, 1, False),
        (grpc.StatusCode.INVALID_ARGUMENT, 0, False),
    ],
)
def test_failed_call_counts_against_its_account_unless_the_fault_is_ours(
    status: grpc.StatusCode, account: int, counted: bool
) -> None:
    intake = Intake(None, {}, IntakeBounds())  # type: ignore[arg-type]  # not asked
    call = _Call(account, one_message(), bytes, read=100 * MIB)
    with (
        pytest.raises(grpc.aio.AbortError),
        intake._counted(call, EndedContext(status)),
    ):
        raise grpc.aio.AbortError
    assert intake._waste.is_wasteful(account) is counted

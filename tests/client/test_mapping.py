from __future__ import annotations

import asyncio
from typing import Any

import pytest

import stoilo
from stoilo.client.chunks import FIRST_ITEMS
from stoilo.client.mapping import SENT_AGAIN
from stoilo.core.codebook import load_codebook
from stoilo.core.codec.skeleton import decode, encode
from stoilo.core.errors import PolicyRefusal
from stoilo.core.types import TaskState
from stoilo.server.validation.assimilation import FAILURES
from stoilo.testing.service import FakeTaskService, Outcome
from tests.support.jailed import JailAnswerer


def square(kw: dict[str, Any]) -> Any:
    return kw["x"] ** 2


def reciprocal(kw: dict[str, Any]) -> Any:
    return 1 / kw["x"]


def test_results_come_in_the_order_of_the_items_from_few_tasks(
    with_fake: Any, in_jail: JailAnswerer
) -> None:
    async def body(conn: Any, service: FakeTaskService) -> None:
        run = conn.map(square, ({"x": x} for x in range(200)))
        assert await run == [x**2 for x in range(200)]
        assert run.progress.done == run.progress.sent == 200
        assert len(service.tasks) == run.progress.tasks < 60

    with_fake(body, FakeTaskService(in_jail, polls=0))


def test_items_have_their_own_outcomes(with_fake: Any, in_jail: JailAnswerer) -> None:
    async def body(conn: Any, _service: FakeTaskService) -> None:
        results = await conn.map(reciprocal, [{"x": 1}, {"x": 0}, {"x": 2}])
        assert results[::2] == [1.0, 0.5]
        assert isinstance(results[1], stoilo.UserError)
        assert isinstance(results[1], ZeroDivisionError)

    with_fake(body, FakeTaskService(in_jail))


def test_iteration_gives_items_as_they_finish(
    with_fake: Any, in_jail: JailAnswerer
) -> None:
    async def body(conn: Any, _service: FakeTaskService) -> None:
        run = conn.map(square, [{"x": x} for x in range(20)], chunk_items=3)
        found = {item.index: item.result async for item in run}
        assert found == {x: x**2 for x in range(20)}

    with_fake(body, FakeTaskService(in_jail))


def test_only_disagreeing_items_are_sent_again(with_fake: Any) -> None:
    seen: list[list[int]] = []

    def answer(request: Any, _service: FakeTaskService) -> Outcome:
        xs = [item["x"] for item in decode(request.arguments)]
        seen.append(xs)
        first = len(seen) == 1
        return Outcome(
            items=tuple(
                Outcome(TaskState.SYSTEM_ERROR, code="STO-R052")
                if first and x in {1, 3}
                else Outcome(value=encode(x))
                for x in xs
            )
        )

    async def body(conn: Any, _service: FakeTaskService) -> None:
        items = [{"x": x} for x in range(5)]
        assert await conn.map(square, items, chunk_items=5) == list(range(5))
        assert seen == [[0, 1, 2, 3, 4], [1, 3]]

    with_fake(body, FakeTaskService(answer))


def test_an_item_that_never_agrees_ends_after_one_more_try(with_fake: Any) -> None:
    def answer(request: Any, _service: FakeTaskService) -> Outcome:
        lost = Outcome(TaskState.SYSTEM_ERROR, code="STO-R052", error_text="no quorum")
        return Outcome(items=(lost,) * request.map_items)

    async def body(conn: Any, service: FakeTaskService) -> None:
        (result,) = await conn.map(square, [{"x": 1}])
        assert isinstance(result, stoilo.SystemError)
        assert len(service.tasks) == 2

    with_fake(body, FakeTaskService(answer))


def test_a_map_that_fails_as_a_whole_fails_each_item(with_fake: Any) -> None:
    async def body(conn: Any, _service: FakeTaskService) -> None:
        results = await conn.map(square, [{"x": 1}, {"x": 2}])
        assert [type(result) for result in results] == [stoilo.SystemError] * 2

    with_fake(body, FakeTaskService(lambda _r, _s: Outcome(TaskState.EXPIRED)))


SENT = {
    "STO-R050": True,  # too many copies failed
    "STO-R052": True,  # the results do not agree
    "STO-R053": False,  # a validator raised
    "STO-R054": False,
    "STO-R057": False,  # the init validator rejects
    "STO-R059": False,  # a validator hit a limit
    "STO-R060": False,  # expired
    "STO-R061": False,  # no opt-in allows it
    "STO-R062": False,  # cancelled
    "STO-R081": True,  # a host's nonsense came last
    "STO-R082": False,  # a limit or the jail ended it
    "STO-E022": True,  # hosts were silent
    "STO-S011": False,  # a limit
}


@pytest.mark.parametrize(("code", "again"), SENT.items())
def test_items_are_sent_again_when_another_try_may_change_them(
    with_fake: Any, code: str, again: bool
) -> None:
    def answer(request: Any, _service: FakeTaskService) -> Outcome:
        lost = Outcome(TaskState.SYSTEM_ERROR, code=code, error_text="no")
        return Outcome(items=(lost,) * request.map_items)

    async def body(conn: Any, service: FakeTaskService) -> None:
        (result,) = await conn.map(square, [{"x": 1}])
        assert result.code == code
        assert len(service.tasks) == 1 + again

    with_fake(body, FakeTaskService(answer))


def test_every_code_with_which_a_server_ends_tasks_is_decided_here() -> None:
    assert {code for code, _ in FAILURES.values()} <= set(SENT)
    known = load_codebook()
    assert {code for code in SENT | dict.fromkeys(SENT_AGAIN) if code not in known} == (
        set()
    )
    assert {code for code in known if "STO-R050" <= code <= "STO-R062"} <= set(SENT)


class StingyService(FakeTaskService):
    """Refuses submissions by a quota a few times."""

    def __init__(self, answer: Any, code: str, times: int) -> None:
        super().__init__(answer, polls=0)
        self.code, self.times = code, times

    async def CreateTask(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's
        self.times -= 1
        refused = PolicyRefusal(self.code, "more than 2 submissions an hour")
        self.refuse = refused if self.times >= 0 else None
        return await super().CreateTask(request, context)


@pytest.mark.parametrize("code", ["STO-R004", "STO-R005", "STO-R008"])
def test_quota_refusal_during_a_map_is_waited_out(
    with_fake: Any, in_jail: JailAnswerer, code: str
) -> None:
    async def body(conn: Any, service: FakeTaskService) -> None:
        assert await conn.map(square, [{"x": 3}, {"x": 4}]) == [9, 16]
        assert service.calls["CreateTask"] == 3

    with_fake(body, StingyService(in_jail, code, times=2))


def test_other_refusals_end_a_map(with_fake: Any, in_jail: JailAnswerer) -> None:
    async def body(conn: Any, _service: FakeTaskService) -> None:
        with pytest.raises(PolicyRefusal, match="STO-R007"):
            await conn.map(square, [{"x": 3}])

    with_fake(body, StingyService(in_jail, "STO-R007", times=1))


def test_an_empty_map_sends_nothing(with_fake: Any) -> None:
    async def body(conn: Any, service: FakeTaskService) -> None:
        assert await conn.map(square, []) == []
        assert not service.tasks

    with_fake(body)


async def submitted(run: Any) -> None:
    """Begin a map and wait until its first task is there."""
    async with asyncio.timeout(60):
        while not run.task_ids:
            await run.results(timeout=0.01)


def test_chunks_that_came_to_nothing_say_nothing_of_sizes(with_fake: Any) -> None:
    def answer(_request: Any, _service: FakeTaskService) -> Outcome:
        return Outcome(state=TaskState.EXPIRED, code="STO-E022")

    async def body(conn: Any, _service: FakeTaskService) -> None:
        run = conn.map(square, [{"x": x} for x in range(20)])
        outcomes = await run
        assert not any(isinstance(one, int) for one in outcomes)
        assert run._sizer.size == FIRST_ITEMS

    with_fake(body, FakeTaskService(answer, polls=0))


def test_a_timeout_keeps_what_is_there(with_fake: Any) -> None:
    def answer(request: Any, _service: FakeTaskService) -> Outcome:
        xs = [item["x"] for item in decode(request.arguments)]
        return Outcome(items=tuple(Outcome(value=encode(x)) for x in xs))

    async def body(conn: Any, service: FakeTaskService) -> None:
        service.polls = 100_000
        run = conn.map(square, [{"x": 1}])
        await submitted(run)
        (late,) = await run.results(timeout=0.2)
        assert isinstance(late, stoilo.TimedOut)
        assert run.task_ids[0] in late.task_id
        await run.cancel()
        assert service.calls["CancelTask"] == 1

    with_fake(body, FakeTaskService(answer))


def test_a_refused_map_raises(with_fake: Any) -> None:
    async def body(conn: Any, service: FakeTaskService) -> None:
        service.refuse = stoilo.SourceRefused("STO-R020", "no", "", ())
        with pytest.raises(stoilo.StoiloError, match="STO-R020"):
            await conn.map(square, [{"x": 1}])
        with pytest.raises(stoilo.StoiloError, match="STO-R020"):
            async for _ in conn.map(square, [{"x": 1}]):
                pass
        await asyncio.sleep(0)

    with_fake(body)


class Host:
    """Computes maps in `per_item_s` a call; ends what takes longer than its limit."""

    def __init__(self, per_item_s: float, limit_s: float = 60.0) -> None:
        self.per_item_s, self.limit_s = per_item_s, limit_s
        self.sizes: list[int] = []

    def __call__(self, request: Any, _service: FakeTaskService) -> Outcome:
        xs = [item["x"] for item in decode(request.arguments)]
        self.sizes.append(len(xs))
        cpu_s = len(xs) * self.per_item_s
        if cpu_s > self.limit_s:
            return Outcome(TaskState.SYSTEM_ERROR, code="STO-S011", error_text="long")
        items = tuple(Outcome(value=encode(x)) for x in xs)
        return Outcome(items=items, cpu_s=cpu_s)


def test_chunks_grow_by_what_copies_computed_however_long_they_waited(
    with_fake: Any,
) -> None:
    host = Host(1e-6)

    async def body(conn: Any, _service: FakeTaskService) -> None:
        items = [{"x": x} for x in range(3000)]
        assert await conn.map(square, items) == list(range(3000))
        assert max(host.sizes) >= 256

    with_fake(body, FakeTaskService(host, polls=3))


def test_chunk_that_hit_a_limit_is_sent_again_in_halves(with_fake: Any) -> None:
    host = Host(25.0)  # two fit, eight do not

    async def body(conn: Any, _service: FakeTaskService) -> None:
        run = conn.map(square, [{"x": x} for x in range(16)])
        assert await run == list(range(16))
        assert run.progress.sent == 16

    with_fake(body, FakeTaskService(host, polls=0))
    assert host.sizes[0] == 8
    assert sorted(size for size in host.sizes if size <= 2) == [2] * 8


def test_item_that_hits_a_limit_by_itself_fails_and_no_other(with_fake: Any) -> None:
    def answer(request: Any, _service: FakeTaskService) -> Outcome:
        xs = [item["x"] for item in decode(request.arguments)]
        if 3 in xs:
            return Outcome(TaskState.SYSTEM_ERROR, code="STO-S011", error_text="long")
        return Outcome(items=tuple(Outcome(value=encode(x)) for x in xs))

    async def body(conn: Any, _service: FakeTaskService) -> None:
        results = await conn.map(square, [{"x": x} for x in range(8)])
        assert results[3].code == "STO-S011"
        assert results[:3] + results[4:] == [0, 1, 2, 4, 5, 6, 7]

    with_fake(body, FakeTaskService(answer, polls=0))


def test_chosen_chunks_that_hit_a_limit_fail_as_they_are(with_fake: Any) -> None:
    host = Host(25.0)

    async def body(conn: Any, _service: FakeTaskService) -> None:
        results = await conn.map(square, [{"x": x} for x in range(4)], chunk_items=4)
        assert [result.code for result in results] == ["STO-S011"] * 4

    with_fake(body, FakeTaskService(host, polls=0))
    assert host.sizes == [4]


def test_large_items_travel_in_smaller_chunks(with_fake: Any) -> None:
    def answer(request: Any, _service: FakeTaskService) -> Outcome:
        calls = decode(request.arguments)
        return Outcome(items=tuple(Outcome(value=encode(c["x"])) for c in calls))

    async def body(conn: Any, service: FakeTaskService) -> None:
        items = [{"x": x, "data": "d" * 100_000} for x in range(12)]
        assert await conn.map(square, items) == list(range(12))
        assert max(task.request.map_items for task in service.tasks.values()) == 5

    with_fake(body, FakeTaskService(answer, polls=0))

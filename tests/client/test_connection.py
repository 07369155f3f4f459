# ruff: noqa: ARG005 - lambdas are the subject, used or not
from __future__ import annotations

import asyncio
import stat
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoilo
from stoilo.client.address import Address
from stoilo.client.session import Journal
from stoilo.client.wire import SourceRefused
from stoilo.core.codec.skeleton import encode
from stoilo.core.errors import (
    DeniedError,
    StoiloError,
    UnreachableError,
    UsageError,
)
from stoilo.core.types import Finding, Redundancy, Severity, TaskState
from stoilo.testing.service import FakeTaskService, Outcome, serve_fake
from tests.support.jailed import JailAnswerer

ADD = {"a": 2, "b": 3}


def add(kwargs: dict[str, Any]) -> Any:
    return kwargs["a"] + kwargs["b"]


def test_a_task_is_staged_submitted_and_gives_its_result(with_fake: Any) -> None:
    async def body(conn: Any, service: FakeTaskService) -> None:
        task = conn.create_task(add, ADD)
        assert task.task_id is None
        assert not service.calls["CreateTask"]
        submitted = await task.submit()
        assert submitted.task_id in service.tasks
        assert await submitted.result() == 5
        assert (
            submitted.source
            == task.source
            == "def add(kwargs):\n" + ("    return kwargs['a'] + kwargs['b']\n")
        )

    with_fake(body)


def test_result_of_a_staged_task_submits_it_once(with_fake: Any) -> None:
    async def body(conn: Any, service: FakeTaskService) -> None:
        task = conn.create_task(add, ADD)
        assert await asyncio.gather(task.result(), task.result()) == [5, 5]
        assert len(service.tasks) == 1

    with_fake(body)


def test_many_tasks_are_gathered_and_computed(
    with_fake: Any, in_jail: JailAnswerer
) -> None:
    async def body(conn: Any, _service: FakeTaskService) -> None:
        tasks = [conn.create_task(add, {"a": i, "b": 1}) for i in range(6)]
        assert await asyncio.gather(*(t.result() for t in tasks)) == list(range(1, 7))

    with_fake(body, FakeTaskService(in_jail))


def test_a_lost_answer_to_submit_makes_no_second_task(with_fake: Any) -> None:
    async def body(conn: Any, service: FakeTaskService) -> None:
        service.lose_answers("CreateTask", 2)
        assert await conn.create_task(add, ADD).result() == 5
        assert service.calls["CreateTask"] == 3
        assert len(service.tasks) == 1

    with_fake(body)


@pytest.mark.parametrize("method", ["PollTask", "WaitTasks"])
def test_lost_answers_to_who_waits_are_repeated(with_fake: Any, method: str) -> None:
    async def body(conn: Any, service: FakeTaskService) -> None:
        task = await conn.create_task(add, ADD).submit()
        service.lose_answers(method, 3)
        assert await task.result() == 5
        assert service.lose[method] == 0
        assert service.calls[method] >= 4

    is_old = method == "PollTask"
    fake = FakeTaskService(lambda _r, _s: Outcome.of(5), is_old=is_old)
    with_fake(body, fake)


def test_a_waiting_client_outlasts_a_server_restart() -> None:
    service = FakeTaskService(lambda _r, _s: Outcome.of(5), polls=2)

    async def main() -> None:
        async with serve_fake(service) as address:
            conn = await stoilo.connect(address, journal=Journal(None))
            task = await conn.create_task(add, ADD).submit()
            waiting = asyncio.ensure_future(task.result())
            await asyncio.sleep(0.01)
        port = int(address.target.rpartition(":")[2])
        await asyncio.sleep(0.3)
        assert not waiting.done()
        async with serve_fake(service, port):
            assert await asyncio.wait_for(waiting, 20) == 5
        await conn.close()

    asyncio.run(main())


def test_a_timeout_is_a_result_of_its_own_that_names_the_task(with_fake: Any) -> None:
    async def body(conn: Any, service: FakeTaskService) -> None:
        service.polls = 10_000
        task = await conn.create_task(add, ADD).submit()
        late = await task.result(timeout=0.1)
        assert isinstance(late, stoilo.TimedOut)
        assert late.task_id == task.task_id
        assert late.exit_code == 6
        service.tasks[task.task_id].polls_left = 0
        assert await conn.restore_task(late.task_id).result() == 5

    with_fake(body)


def test_a_timeout_also_ends_waiting_for_a_dead_server() -> None:
    service = FakeTaskService(lambda _r, _s: Outcome.of(5))

    async def main() -> None:
        async with serve_fake(service) as address:
            conn = await stoilo.connect(address, journal=Journal(None))
            task = await conn.create_task(add, ADD).submit()
        assert isinstance(await task.result(timeout=0.3), stoilo.TimedOut)
        await conn.close()

    asyncio.run(main())


def test_a_task_is_restored_by_another_connection(with_fake: Any) -> None:
    async def body(conn: Any, service: FakeTaskService) -> None:
        task_id = (await conn.create_task(add, ADD).submit()).task_id
        address = Address(conn.target, service.token)
        async with stoilo.connect(address, journal=Journal(None)) as other:
            assert await other.restore_task(task_id).result() == 5

    with_fake(body)


def test_status_and_explain_say_why_it_waits(with_fake: Any) -> None:
    async def body(conn: Any, service: FakeTaskService) -> None:
        service.polls = 100
        task = await conn.create_task(add, ADD).submit()
        status = await task.status()
        assert status.state is TaskState.RUNNING
        assert "needs 2 distinct users, 1 attached" in await task.explain()
        assert "needs 2 distinct users" in status._repr_html_()
        assert not await task.done()

    with_fake(body)


def test_cancel_ends_the_task_with_a_system_error(with_fake: Any) -> None:
    async def body(conn: Any, service: FakeTaskService) -> None:
        service.polls = 100
        task = await conn.create_task(add, ADD).submit()
        assert await task.cancel()
        result = await task.result()
        assert isinstance(result, stoilo.SystemError)
        assert result.code == "STO-R062"

    with_fake(body)


def test_reason_of_a_rejection_reaches_the_server(with_fake: Any) -> None:
    async def body(conn: Any, service: FakeTaskService) -> None:
        task = await conn.create_task(add, ADD).submit()
        assert await task.reject("far from all others")
        assert service.rejected == {task.task_id: "far from all others"}

    with_fake(body)


@pytest.mark.parametrize(("most", "uploads"), [(1, 0), (1 << 20, 1)])
def test_stored_value_is_named_and_a_large_one_never_read(
    with_fake: Any, most: int, uploads: int
) -> None:
    async def body(conn: Any, service: FakeTaskService) -> None:
        service.inline_bytes = most
        handle = await (await conn.create_task(add, ADD).submit()).stored()
        assert isinstance(handle, stoilo.StoredValue)
        assert service.blobs[handle.digest] == encode(5)
        await conn.create_task(add, {"a": handle, "b": 1}).submit()
        assert list(service.tasks.values())[-1].request.blobs == [handle.digest]
        assert (service.calls["UploadBlob"], service.calls["DownloadBlob"]) == (
            uploads,
            0,
        )

    with_fake(body)


def test_stored_gives_the_error_of_a_task_without_a_value(with_fake: Any) -> None:
    async def body(conn: Any, _service: FakeTaskService) -> None:
        found = await (await conn.create_task(add, ADD).submit()).stored()
        assert isinstance(found, stoilo.UserError)

    outcome = Outcome(TaskState.USER_ERROR, b"", "ZeroDivisionError", "by zero")
    with_fake(body, FakeTaskService(lambda _request, _service: outcome))


def test_errors_are_returned_and_keep_the_builtin_type(with_fake: Any) -> None:
    outcome = Outcome(TaskState.USER_ERROR, b"", "ZeroDivisionError", "by zero")

    async def body(conn: Any, _service: FakeTaskService) -> None:
        result = await conn.create_task(add, ADD).result()
        assert isinstance(result, stoilo.UserError)
        assert isinstance(result, ZeroDivisionError)
        assert str(result) == "ZeroDivisionError: by zero"

    with_fake(body, FakeTaskService(lambda _r, _s: outcome))


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (TaskState.SYSTEM_ERROR, "STO-R052"),
        (TaskState.EXPIRED, "STO-R060"),
        (TaskState.CANCELLED, "STO-R062"),
    ],
)
def test_other_ends_are_system_errors(
    with_fake: Any, state: TaskState, code: str
) -> None:
    async def body(conn: Any, _service: FakeTaskService) -> None:
        result = await conn.create_task(add, ADD).result()
        assert isinstance(result, stoilo.SystemError)
        assert result.code == code

    with_fake(body, FakeTaskService(lambda _r, _s: Outcome(state)))


def test_refusals_carry_their_findings(with_fake: Any) -> None:
    finding = Finding("STO-P023", Severity.ERROR, 2, 5, 2, 9, "no eval", "leave it out")
    refusal = SourceRefused("STO-R020", "the gate refused it", "see", (finding,))

    async def body(conn: Any, service: FakeTaskService) -> None:
        service.refuse = refusal
        with pytest.raises(SourceRefused) as error:
            await conn.create_task(add, ADD).submit()
        assert error.value.findings == (finding,)
        here = f"{Path(__file__).name}:{add.__code__.co_firstlineno + 1}"
        assert f"{here}  no eval [STO-P023] - leave it out" in str(error.value)

    with_fake(body)


def test_large_arrays_go_up_and_come_back_as_blobs(
    with_fake: Any, in_jail: JailAnswerer
) -> None:
    array = np.arange(300_000, dtype=np.float64)

    async def body(conn: Any, service: FakeTaskService) -> None:
        def double(kw: Any) -> Any:
            return kw["x"] * 2

        first = conn.create_task(double, {"x": array})
        second = conn.create_task(double, {"x": array})
        results = await asyncio.gather(first.result(), second.result())
        assert all(np.array_equal(result, array * 2) for result in results)
        assert service.calls["UploadBlob"] == 1
        assert service.calls["DownloadBlob"] == 2

    with_fake(body, FakeTaskService(in_jail, inline_bytes=1000))


def test_a_put_value_is_uploaded_once_and_named_by_many(
    with_fake: Any, in_jail: JailAnswerer
) -> None:
    async def body(conn: Any, service: FakeTaskService) -> None:
        shared = await conn.put(list(range(1000)))
        tasks = [
            conn.create_task(lambda kw: kw["v"][kw["i"]], {"v": shared, "i": i})
            for i in (3, 4)
        ]
        assert [await task.result() for task in tasks] == [3, 4]
        assert service.calls["UploadBlob"] == 1

    with_fake(body, FakeTaskService(in_jail))


def test_options_reach_the_server(with_fake: Any) -> None:
    async def body(conn: Any, service: FakeTaskService) -> None:
        task = await conn.create_task(
            add,
            ADD,
            init_valid_func=lambda v: v > 0,
            redundancy_options=stoilo.low_level.redundancy.CreateOptions(min_quorum=3),
            flavor="44814764c91bf9ef426c4aa899df974f",
            level="numeric",
            limits=stoilo.TaskLimits(cpu_s=7),
            label="mine",
            publish_source=True,
        ).submit()
        request = service.tasks[task.task_id].request
        assert request.redundancy.min_quorum == 3
        assert request.limits.cpu_s == 7
        assert (request.level, request.label) == ("numeric", "mine")
        assert request.init_entry == "init_valid"
        assert request.publish_source
        assert request.flavor.startswith("4481")

    with_fake(body)


@pytest.mark.parametrize(
    "options",
    [
        {"redundancy_options": {"min_quorum": 2}},
        {"redundancy_options": Redundancy(min_quorum=0)},
        {"label": "x" * 200},
    ],
)
def test_unusable_options_are_refused_before_anything_is_sent(
    with_fake: Any, options: dict[str, Any]
) -> None:
    async def body(conn: Any, service: FakeTaskService) -> None:
        with pytest.raises(UsageError):
            conn.create_task(add, ADD, **options)
        assert not service.calls["CreateTask"]

    with_fake(body)


def test_the_exact_text_is_shown_once_a_source_and_can_be_refused(
    with_fake: Any,
) -> None:
    seen: list[str] = []

    def review(text: str) -> bool:
        seen.append(text)
        return "return" in text and len(seen) < 2

    async def body(conn: Any, service: FakeTaskService) -> None:
        assert await conn.create_task(add, ADD).result() == 5
        assert await conn.create_task(add, {"a": 1, "b": 1}).result() == 5
        assert len(seen) == 1
        assert seen[0] == conn.preview(add, ADD)
        with pytest.raises(UsageError, match="STO-C040"):
            await conn.create_task(lambda kw: 1, {}).submit()
        assert len(service.tasks) == 2

    with_fake(body, review=review)


def test_preview_shows_the_validators_too(with_fake: Any) -> None:
    async def body(conn: Any, _service: FakeTaskService) -> None:
        text = conn.preview(add, ADD, lambda v: v > 1)
        assert "def init_valid(v):" in text

    with_fake(body)


def timed(_kwargs: dict[str, Any]) -> float:
    began = time.perf_counter()
    return datetime.now(tz=UTC).timestamp() + time.perf_counter() - began


def timeless(kwargs: dict[str, Any]) -> Any:
    time.sleep(0)
    return kwargs["clock"].time()


@pytest.mark.parametrize(
    ("function", "clocks"),
    [(timed, {"time.perf_counter()", "datetime.now()"}), (timeless, set())],
    ids=["timed", "control"],
)
def test_preview_warns_of_clocks_that_are_virtual_in_a_task(
    with_fake: Any,
    caplog: pytest.LogCaptureFixture,
    function: Callable[..., Any],
    clocks: set[str],
) -> None:
    async def body(conn: Any, _service: FakeTaskService) -> None:
        conn.preview(function)

    with_fake(body)
    told = [row.message for row in caplog.records if "on volunteers'" in row.message]
    assert {row.split()[3] for row in told} == clocks


def test_own_tasks_are_listed_by_state_and_label(with_fake: Any) -> None:
    async def body(conn: Any, _service: FakeTaskService) -> None:
        task = await conn.create_task(add, ADD, label="mine").submit()
        await conn.create_task(add, ADD, label="other").submit()
        (found,) = await conn.list_tasks(label="mine", states=["running"])
        assert (found.task_id, found.state.final) == (task.task_id, False)
        assert await conn.list_tasks(states=["cancelled"]) == []

    with_fake(body)


def test_submitted_ids_are_journalled_for_other_processes(
    with_fake: Any, tmp_path: Path
) -> None:
    journal = Journal(tmp_path / "state" / "tasks.jsonl")

    async def body(conn: Any, _service: FakeTaskService) -> str:
        task = await conn.create_task(add, ADD, label="first").submit()
        assert conn.recent_tasks()[0].task_id == task.task_id
        return str(task.task_id)

    task_id = with_fake(body, journal=journal)
    assert journal.path is not None
    assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600
    entry = Journal(journal.path).read()[0]
    assert (entry.task_id, entry.label) == (task_id, "first")


def test_connecting_to_nobody_says_what_was_tried(with_fake: Any) -> None:
    async def main() -> None:
        await stoilo.connect(Address("127.0.0.1:9", "t"), timeout=0.3)

    with pytest.raises(UnreachableError, match="STO-C050") as error:
        asyncio.run(main())
    assert "127.0.0.1:9" in error.value.message
    assert "stoilo up" in error.value.hint
    del with_fake


def test_a_wrong_token_is_told_at_once() -> None:
    async def main() -> None:
        service = FakeTaskService(lambda _r, _s: Outcome.of(5))
        async with serve_fake(service) as address:
            await stoilo.connect(Address(address.target, "wrong"), timeout=5)

    with pytest.raises(DeniedError, match="STO-R001"):
        asyncio.run(main())


def test_a_strangers_task_is_not_found(with_fake: Any) -> None:
    async def body(conn: Any, _service: FakeTaskService) -> None:
        with pytest.raises(DeniedError):
            await conn.restore_task("no-such-id").result()
        with pytest.raises(UsageError, match="STO-C042"):
            conn.restore_task(" ")

    with_fake(body)


def test_submitting_to_a_lost_server_gives_up_after_the_patience() -> None:
    service = FakeTaskService(lambda _r, _s: Outcome.of(5))

    async def main() -> None:
        async with serve_fake(service) as address:
            conn = await stoilo.connect(address, journal=Journal(None), patience=0.3)
            task = conn.create_task(add, ADD)
        with pytest.raises(UnreachableError, match="last answered"):
            await task.submit()
        port = int(address.target.rpartition(":")[2])
        async with serve_fake(service, port):
            await asyncio.sleep(0.3)
            assert await task.result() == 5
        await conn.close()

    asyncio.run(main())


@pytest.mark.parametrize("value", [b"", b"STO", b"\x00" * 50])
def test_a_malformed_value_ends_in_our_error(with_fake: Any, value: bytes) -> None:
    async def body(conn: Any, _service: FakeTaskService) -> None:
        with pytest.raises(StoiloError, match="STO-D002"):
            await conn.create_task(add, ADD).result()

    with_fake(body, FakeTaskService(lambda _r, _s: Outcome(value=value)))


def test_reprs_lead_to_the_console_where_it_is_known(with_fake: Any) -> None:
    pages = "https://project.example/a'b/"
    href = "<a href='https://project.example/a&#x27;b/console/"

    async def body(_conn: Any, service: FakeTaskService) -> None:
        address = replace(_conn.session.wire.address, pages=pages)
        async with stoilo.connect(address, journal=Journal(None)) as conn:
            task = await conn.create_task(add, ADD).submit()
            for shown in (
                task,
                await task.status(),
                task,
            ):  # before and after it is asked
                assert f"{href}task/{task.task_id}' " in shown._repr_html_()
                assert service.token not in shown._repr_html_()
            assert f"more at {pages}console/task/{task.task_id}" in await task.explain()
            sweep = conn.map(add, [ADD], label="sweep 3")
            assert f"{href}label/sweep' " in sweep._repr_html_()

    with_fake(body)


def test_reprs_have_no_link_where_no_address_is_known(with_fake: Any) -> None:
    async def body(conn: Any, _service: FakeTaskService) -> None:
        task = await conn.create_task(add, ADD).submit()
        shown = [task, await task.status(), conn.map(add, [ADD], label="sweep")]
        assert not [one for one in shown if "<a" in one._repr_html_()]
        assert "more at" not in await task.explain()

    with_fake(body)


def test_reprs_are_small_and_escaped(with_fake: Any) -> None:
    async def body(conn: Any, _service: FakeTaskService) -> None:
        task = conn.create_task(lambda kw: "<script>", {})
        assert "&lt;script&gt;" in task._repr_html_()
        assert "<script>" not in task._repr_html_()
        submitted = await task.submit()
        assert submitted.task_id in repr(submitted)
        assert "fake-token" not in repr(conn) + repr(submitted) + repr(task)

    with_fake(body)

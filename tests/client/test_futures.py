from __future__ import annotations

import concurrent.futures
import operator
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stoilo
from stoilo.client.futures import TaskFuture
from stoilo.client.session import Journal
from stoilo.core.types import TaskState
from stoilo.testing.service import FakeTaskService, Outcome
from tests.support.jailed import JailAnswerer


@pytest.fixture
def executor(fake_thread: Any, in_jail: JailAnswerer) -> Iterator[stoilo.Executor]:
    fake = fake_thread(FakeTaskService(in_jail))
    with (
        stoilo.connect_sync(fake.address, journal=Journal(None)) as conn,
        stoilo.Executor(conn) as made,
    ):
        yield made


@pytest.fixture
def slow(fake_thread: Any) -> Iterator[tuple[stoilo.Executor, FakeTaskService]]:
    service = FakeTaskService(lambda _r, _s: Outcome.of(1), polls=10_000)
    fake = fake_thread(service)
    with stoilo.connect_sync(fake.address, journal=Journal(None)) as conn:
        yield stoilo.Executor(conn), service


def weigh(a: int, b: int = 1, *more: int, scale: int = 1) -> int:
    return scale * (a + b + sum(more))


def test_it_is_a_real_executor() -> None:
    assert issubclass(stoilo.Executor, concurrent.futures.Executor)
    assert issubclass(TaskFuture, concurrent.futures.Future)


def test_submit_passes_any_arguments(executor: stoilo.Executor) -> None:
    assert executor.submit(weigh, 1).result(60) == 2
    assert executor.submit(weigh, 1, 2, 3, scale=10).result(60) == 60
    assert executor.submit(pow, 2, 5).result(60) == 32
    assert executor.submit(operator.add, "a", "b").result(60) == "ab"


def test_the_functions_exception_is_raised_as_what_it_was(
    executor: stoilo.Executor,
) -> None:
    future = executor.submit(operator.truediv, 1, 0)
    with pytest.raises(ZeroDivisionError):
        future.result(60)
    assert isinstance(future.exception(), stoilo.UserError)


def test_map_is_ordered_zipped_and_raises_at_its_place(
    executor: stoilo.Executor,
) -> None:
    assert list(executor.map(pow, [2, 3, 4], [2, 2, 2, 2])) == [4, 9, 16]
    assert list(executor.map(weigh, range(5), chunksize=2)) == [1, 2, 3, 4, 5]
    assert list(executor.map(pow, [], [])) == []
    results = executor.map(divmod, [5, 1], [2, 0])
    assert next(results) == (2, 1)
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_callbacks_wait_and_as_completed_work(executor: stoilo.Executor) -> None:
    called: list[Any] = []
    futures = [executor.submit(weigh, n) for n in range(3)]
    futures[0].add_done_callback(lambda future: called.append(future.result()))
    done, pending = concurrent.futures.wait(futures, timeout=60)
    assert (len(done), len(pending)) == (3, 0)
    assert called == [1]
    assert {f.result() for f in concurrent.futures.as_completed(futures)} == {1, 2, 3}
    assert all(future.task_id for future in futures)


def test_a_timeout_raises_and_the_task_goes_on(
    slow: tuple[stoilo.Executor, FakeTaskService],
) -> None:
    executor, _ = slow
    future = executor.submit(weigh, 1)
    with pytest.raises(TimeoutError):
        future.result(0.1)
    assert not future.done()
    with pytest.raises(TimeoutError):
        next(executor.map(weigh, [1], timeout=0.1))
    executor.shutdown(cancel_futures=True)


def test_cancel_reaches_the_server(
    slow: tuple[stoilo.Executor, FakeTaskService],
) -> None:
    executor, service = slow
    future = executor.submit(weigh, 1)
    deadline = time.monotonic() + 60
    while future.task_id is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert future.cancel()
    assert future.cancelled()
    while not service.calls["CancelTask"] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert service.tasks[str(future.task_id)].state is TaskState.CANCELLED
    executor.shutdown()


def test_after_shutdown_nothing_is_taken(executor: stoilo.Executor) -> None:
    executor.shutdown()
    with pytest.raises(RuntimeError):
        executor.submit(weigh, 1)
    with pytest.raises(RuntimeError):
        executor.map(weigh, [1])


def test_shutdown_cancels_what_is_pending(
    slow: tuple[stoilo.Executor, FakeTaskService],
) -> None:
    executor, _ = slow
    futures = [executor.submit(weigh, n) for n in range(3)]
    executor.shutdown(cancel_futures=True)
    assert all(future.cancelled() for future in futures)


def test_what_cannot_travel_is_refused_at_submit(executor: stoilo.Executor) -> None:
    with open(__file__) as file, pytest.raises(stoilo.StoiloError, match="STO-C010"):  # noqa: PTH123 - a file object is the point
        executor.submit(weigh, file)


def test_an_initializer_is_refused_with_the_reason() -> None:
    with pytest.raises(stoilo.StoiloError, match="process of its own") as caught:
        stoilo.Executor(initializer=print)
    assert caught.value.code == "STO-C042"


def test_map_yields_before_the_whole_map_is_done(
    in_jail: Any, fake_thread: Any
) -> None:
    first = threading.Event()

    def answer(request: Any, service: FakeTaskService) -> Outcome:
        if request.map_items == 1 and not first.wait(60):
            return Outcome(TaskState.EXPIRED, code="STO-S010")
        return in_jail(request, service)

    fake = fake_thread(FakeTaskService(answer))
    with (
        stoilo.connect_sync(fake.address, journal=Journal(None)) as conn,
        stoilo.Executor(conn) as executor,
    ):
        results = executor.map(weigh, range(9), timeout=50)
        assert next(results) == 1
        first.set()
        assert list(results) == [2, 3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("call", ["submit", "map"])
def test_an_owned_connection_closes_after_the_server_heard_of_cancelling(
    fake_thread: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wait_until: Any,
    call: str,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    service = FakeTaskService(lambda _r, _s: Outcome.of(1), polls=10_000)
    executor = stoilo.Executor(fake_thread(service).address)
    getattr(executor, call)(weigh, [1])
    wait_until(lambda: bool(service.tasks))
    executor.shutdown(cancel_futures=True)
    assert [task.state for task in service.tasks.values()] == [TaskState.CANCELLED]
    with pytest.raises(Exception, match=r"closed|STO-C050"):
        executor._connection.list_tasks()


def test_an_owned_connection_stays_for_what_is_pending(
    fake_thread: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    service = FakeTaskService(lambda _r, _s: Outcome.of(1), polls=10)
    executor = stoilo.Executor(fake_thread(service).address)
    future = executor.submit(weigh, 1)
    executor.shutdown(wait=False)
    assert future.result(60) == 1

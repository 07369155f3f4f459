"""What an executor of the standard library promises, asked of threads and of ours.

Each test runs on both, so that none of them asks for what the standard library does not do.
What a remote executor cannot do is listed in `docs/howto/use-map.md`.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import stoilo
from stoilo.client.session import Journal
from stoilo.testing.service import FakeTaskService
from tests.support.jailed import JailAnswerer

PATIENCE_S = 60.0
_gate = threading.Event()


def weigh(a: int, b: int = 1, /, *more: int, self: int = 0, fn: int = 0) -> list[int]:
    return [a, b, *more, self, fn]


def divide(a: int, b: int) -> float:
    return a / b


def held(number: int) -> int:
    """The fake service holds such a task until the gate is open; threads `wait_here`."""
    return number


def wait_here(number: int) -> int:
    _gate.wait(PATIENCE_S)
    return number


class GatedService(FakeTaskService):
    """Tasks that call `held` come no nearer to their end until the gate is open."""

    async def _go_on(self, task: Any) -> None:
        if _gate.is_set() or b"def held" not in task.request.task_module:
            await super()._go_on(task)


@pytest.fixture(params=["threads", "stoilo"])
def make(
    request: pytest.FixtureRequest, fake_thread: Any, in_jail: JailAnswerer
) -> Iterator[Callable[[], concurrent.futures.Executor]]:
    """Return what makes one executor after the other; the gate is shut at first."""
    _gate.clear()
    if request.param == "threads":
        yield lambda: concurrent.futures.ThreadPoolExecutor(8)
    else:
        fake = fake_thread(GatedService(in_jail))
        with stoilo.connect_sync(fake.address, journal=Journal(None)) as conn:
            yield lambda: stoilo.Executor(conn)
            _gate.set()
    _gate.set()


@pytest.fixture
def pool(make: Any) -> Iterator[concurrent.futures.Executor]:
    executor = make()
    yield executor
    _gate.set()
    executor.shutdown(cancel_futures=True)


@pytest.fixture
def late(pool: concurrent.futures.Executor) -> Callable[[int], Any]:
    """Submit what ends only when the gate is open."""
    function = held if isinstance(pool, stoilo.Executor) else wait_here
    return lambda number: pool.submit(function, number)


def test_submit_takes_any_names_as_keywords(pool: Any) -> None:
    future = pool.submit(weigh, 1, 2, 3, self=4, fn=5)
    assert future.result(PATIENCE_S) == [1, 2, 3, 4, 5]
    with pytest.raises(TypeError):
        pool.submit(fn=weigh, arg=1)
    with pytest.raises(TypeError):
        pool.submit()


def test_a_result_is_there_again_and_again(pool: Any) -> None:
    future = pool.submit(divide, 6, 3)
    assert [future.result(PATIENCE_S), future.result(0)] == [2, 2]
    assert (future.done(), future.running(), future.cancelled()) == (True, False, False)
    assert future.exception() is None
    assert not future.cancel()


def test_the_exception_is_the_functions_own(pool: Any) -> None:
    future = pool.submit(divide, 1, 0)
    assert isinstance(future.exception(PATIENCE_S), ZeroDivisionError)
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        future.result()


def test_result_and_exception_time_out_and_the_call_goes_on(late: Any) -> None:
    future = late(7)
    for ask in (future.result, future.exception):
        with pytest.raises(concurrent.futures.TimeoutError):
            ask(timeout=0.05)
    assert not future.done()
    _gate.set()
    assert future.result(PATIENCE_S) == 7


def test_map_is_lazy_at_the_end_only_and_zips_to_the_shortest(pool: Any) -> None:
    given = iter([1, 2, 3])
    results = pool.map(weigh, given, [5, 6, 7, 8])
    assert list(given) == []
    assert list(results) == [weigh(1, 5), weigh(2, 6), weigh(3, 7)]
    assert list(pool.map(weigh, [])) == []


def test_map_gives_what_comes_before_an_error_and_ends_there(pool: Any) -> None:
    results = pool.map(divide, [4, 6, 1, 8], [2, 3, 0, 2], chunksize=1)
    assert [next(results), next(results)] == [2, 2]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert list(results) == []


def test_map_times_out_and_gives_up_the_rest(pool: Any) -> None:
    slow = held if isinstance(pool, stoilo.Executor) else wait_here
    results = pool.map(slow, [1, 2], timeout=0.1)
    with pytest.raises(concurrent.futures.TimeoutError):
        next(results)
    assert list(results) == []


def test_map_submits_without_being_iterated(make: Any) -> None:
    with make() as pool:
        results = pool.map(divide, [2, 4], [1, 1])
    assert list(results) == [2, 4]


def test_shutdown_waits_for_submitted_calls(make: Any) -> None:
    pool = make()
    futures = [pool.submit(divide, n, 1) for n in range(4)]
    pool.shutdown()
    assert [future.result(0) for future in futures] == [0, 1, 2, 3]
    pool.shutdown()  # twice does no harm


def test_shutdown_without_waiting_lets_calls_finish(make: Any) -> None:
    pool = make()
    future = pool.submit(divide, 8, 2)
    pool.shutdown(wait=False)
    assert future.result(PATIENCE_S) == 4


@pytest.mark.parametrize("call", ["submit", "map"])
def test_after_shutdown_nothing_is_taken(make: Any, call: str) -> None:
    pool = make()
    pool.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        getattr(pool, call)(divide, [1], [1])


def test_wait_returns_at_the_first(pool: Any, late: Any) -> None:
    never, quick = late(1), pool.submit(divide, 1, 1)
    kept, left = concurrent.futures.wait(
        [never, quick], PATIENCE_S, return_when=concurrent.futures.FIRST_COMPLETED
    )
    assert (kept, left) == ({quick}, {never})


def test_wait_returns_at_the_first_exception(pool: Any, late: Any) -> None:
    never, quick, wrong = late(1), pool.submit(divide, 1, 1), pool.submit(divide, 1, 0)
    kept, left = concurrent.futures.wait(
        [never, quick, wrong],
        PATIENCE_S,
        return_when=concurrent.futures.FIRST_EXCEPTION,
    )
    assert wrong in kept
    assert never in left


def test_wait_and_as_completed_time_out(pool: Any, late: Any) -> None:
    never, quick = late(1), pool.submit(divide, 1, 1)
    assert quick.result(PATIENCE_S) == 1
    assert concurrent.futures.wait([never, quick], 0.05) == ({quick}, {never})
    seen = []
    with pytest.raises(concurrent.futures.TimeoutError):
        seen += [*_each([never, quick, quick], 0.05)]
    _gate.set()
    assert set(_each([never, quick, quick], PATIENCE_S)) == {never, quick}


def _each(futures: list[Any], timeout: float) -> Iterator[Any]:
    return concurrent.futures.as_completed(futures, timeout=timeout)


def test_callbacks_are_called_once_in_order_also_when_late(
    pool: Any, late: Any
) -> None:
    future, seen = late(3), []
    future.add_done_callback(lambda one: seen.append(("first", one)))
    future.add_done_callback(lambda one: seen.append(("second", one)))
    _gate.set()
    pool.submit(divide, 1, 1).result(PATIENCE_S)
    pool.shutdown()
    future.add_done_callback(lambda one: seen.append(("late", one)))
    assert seen == [("first", future), ("second", future), ("late", future)]


def test_a_callback_that_raises_is_logged_and_keeps_no_other(
    late: Any, pool: Any, caplog: pytest.LogCaptureFixture
) -> None:
    future, seen = late(3), []
    future.add_done_callback(lambda _one: [].pop())
    future.add_done_callback(seen.append)
    _gate.set()
    pool.shutdown()
    assert seen == [future]
    assert "exception calling callback" in caplog.text


def test_futures_from_many_threads_do_not_mix(pool: Any) -> None:
    found: dict[int, Any] = {}

    def ask(number: int) -> None:
        found[number] = pool.submit(divide, number, 1).result(PATIENCE_S)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert found == {n: n for n in range(8)}

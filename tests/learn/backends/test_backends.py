"""One contract for threads and simulated volunteers; the server's backend: tests/e2e."""

import asyncio
from dataclasses import replace

import pytest

from stoilo.client.results import SystemError as TaskSystemError
from stoilo.client.results import UserError
from stoilo.learn.backends import Handle, Job, server
from stoilo.learn.backends.local import LocalBackend
from stoilo.learn.backends.simulated import SimulatedBackend, SimulatedHost, Spell


def double(kwargs):
    kwargs["box"].append(kwargs["n"])
    return kwargs["n"] * 2 + len(kwargs["box"])


def fail(kwargs):
    raise ValueError(kwargs["n"])


def job(key, n=1, function=double, **arguments):
    return Job(
        key, function, {"n": n, "box": [], **arguments}, samples=100, level="pure"
    )


def simulated(**changes):
    return SimulatedBackend([SimulatedHost(**changes), SimulatedHost(**changes)])


@pytest.fixture(params=[LocalBackend, simulated], ids=["local", "simulated"])
def backend(request):
    return request.param()


async def test_every_job_ends_once_with_its_value(backend):
    async with backend:
        for n in range(5):
            assert await backend.submit(job(f"k{n}", n)) == f"k{n}"
        endings = [await backend.next() for _ in range(5)]
        assert await backend.next() is None
    assert {e.job_id: e.value for e in endings} == {
        f"k{n}": 2 * n + 1 for n in range(5)
    }


async def test_same_key_is_the_same_job(backend):
    async with backend:
        await backend.submit(job("k"))
        await backend.submit(job("k"))
        assert (await backend.next()).value == 3
        assert await backend.next() is None


async def test_stored_value_stands_where_its_handle_is_and_is_not_shared(backend):
    async with backend:
        handle = await backend.put([1, 2])
        for key in "ab":
            await backend.submit(job(key, box=handle))
        values = [(await backend.next()).value for _ in range(2)]
    assert values == [5, 5]
    assert (len(handle.digest), handle.stored) == (64, [1, 2])


async def test_value_that_stays_is_given_to_the_next_job_by_its_handle(backend):
    async with backend:
        await backend.submit(replace(job("k", 4), stays=True))
        handle = (await backend.next()).value
        assert isinstance(handle, Handle)
        await backend.submit(job("next", n=handle))
        assert (await backend.next()).value == 2 * 9 + 1


async def test_value_that_is_no_data_cannot_stay():
    async with LocalBackend() as backend:
        await backend.submit(Job("k", lambda _: object(), {}, 1, "pure", stays=True))
        ending = await backend.next()
    assert (ending.value, ending.error.code) == (None, "STO-D001")


async def test_exception_of_the_function_is_a_user_error(backend):
    async with backend:
        await backend.submit(job("k", function=fail))
        ending = await backend.next()
    assert isinstance(ending.error, UserError)
    assert isinstance(ending.error, ValueError)


async def test_cancelled_job_gives_no_ending(backend):
    async with backend:
        await backend.submit(job("a"))
        await backend.submit(job("b"))
        await backend.cancel("a")
        assert (await backend.next()).job_id == "b"
        assert await backend.next() is None


async def test_time_goes_forward(backend):
    async with backend:
        before = backend.now()
        await backend.submit(job("k"))
        ending = await backend.next()
        assert before <= ending.finished_at <= backend.now()


async def test_simulated_time_is_work_over_speed():
    backend = SimulatedBackend([SimulatedHost(samples_per_s=50.0, poll_s=1.0)])
    for key in "abc":
        await backend.submit(job(key))
    times = [(await backend.next()).finished_at for _ in range(3)]
    assert times == [2.0, 5.0, 8.0]


async def test_lost_task_is_given_again_after_its_deadline():
    hosts = [SimulatedHost(away=[Spell(0.5, 9.0)]), SimulatedHost()]
    backend = SimulatedBackend(hosts, deadline_s=20.0)
    await backend.submit(job("lost"))
    ending = await backend.next()
    assert ending.value == 3
    assert ending.finished_at == 21.0


async def test_task_that_nobody_returns_ends_in_a_system_error():
    backend = SimulatedBackend([SimulatedHost(loss=1.0)], deadline_s=10.0, tries=2)
    await backend.submit(job("k"))
    assert isinstance((await backend.next()).error, TaskSystemError)


async def test_host_that_loses_tasks_asks_for_the_next_as_rarely_as_another():
    hosts = [SimulatedHost(loss=1.0, poll_s=1.0), SimulatedHost(poll_s=1.0)]
    backend = SimulatedBackend(hosts, deadline_s=1e6, tries=1)
    for number in range(40):
        await backend.submit(job(f"k{number}"))
    while (await backend.next(wait_s=100.0)) is not None:
        pass
    assert backend.served == [0, 20]


class Silent:
    """A connection whose server never hears of a wrong answer."""

    def restore_task(self, _):
        return self

    async def reject(self, _):
        await asyncio.Event().wait()


async def test_server_that_does_not_answer_holds_no_training_up(monkeypatch, caplog):
    monkeypatch.setattr(server, "REPORT_S", 0.01)
    await server.ServerBackend(Silent()).refuse("task", "wrong")
    assert "could not be reported" in caplog.text

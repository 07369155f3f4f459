"""A step's orders go out by one call, and are waited for by one stream."""

import pytest

import stoilo
from stoilo.client.session import Journal
from stoilo.core.errors import UnreachableError, UsageError
from stoilo.learn import LocalBackend
from stoilo.learn.backends import Job
from stoilo.learn.backends.server import ServerBackend
from stoilo.testing.service import FakeTaskService, Outcome, serve_fake


def double(kwargs):
    return 2 * kwargs["n"]


def make_jobs(count=4):
    return [Job(f"k{n}", double, {"n": n}, 1, "pure") for n in range(count)]


@pytest.fixture
def service():
    return FakeTaskService(lambda _r, _s: Outcome.of(5))


async def test_jobs_of_one_step_are_one_call(service):
    async with (
        serve_fake(service) as address,
        stoilo.connect(address, journal=Journal(None)) as conn,
        ServerBackend(conn) as backend,
    ):
        ids = await backend.submit_many(make_jobs())
        assert (len(set(ids)), await backend.submit_many(make_jobs())) == (4, ids)
        ended = [(await backend.next()).job_id for _ in ids]
        assert (sorted(ended), await backend.next()) == (sorted(ids), None)
    assert (service.calls["CreateTasks"], service.calls["CreateTask"]) == (2, 0)
    assert (service.calls["WaitTasks"], service.calls["PollTask"]) == (1, 1)


class Choosy(LocalBackend):
    """Refuses one job, or is away for it."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    async def submit(self, job):
        if job.key == "k1":
            raise self.error
        return await super().submit(job)


async def test_refused_job_leaves_the_others_started():
    error = UsageError("STO-R011", "the key names another task")
    async with Choosy(error) as backend:
        found = await backend.submit_many(make_jobs(3))
    assert found == ["k0", error, "k2"]


async def test_place_that_is_away_is_told_of_for_all():
    async with Choosy(UnreachableError("STO-C050", "no answer")) as backend:
        with pytest.raises(UnreachableError):
            await backend.submit_many(make_jobs(3))

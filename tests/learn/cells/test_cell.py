"""A cell as a backend: groups form, break and form again; nothing is lost, nothing hangs.

Workers are plain processes here, without torch: see `tests.support.cells`.
"""

import asyncio
import signal
import socket
import time

import pytest
from msgspec.structs import replace

from stoilo import learn
from stoilo.client.results import UserError
from stoilo.core.errors import DeniedError, StoiloError, UnreachableError, UsageError
from stoilo.learn.backends import Job
from stoilo.learn.cells.cell import cell
from stoilo.learn.kernels import torch_models
from tests.support.cells import MEMBER, PLAIN, Fated, Leading, Lying
from tests.support.networkshard import NetworkShard

LIMITS = learn.CellLimits(order_s=3.0, lease_s=1.5, form_s=20.0)
HASTY = learn.CellLimits(order_s=3.0, lease_s=1.0, form_s=6.0)
ANSWER = {"kernel": "gradient", "rank": 0}


def make_job(key="a", **arguments):
    return Job(key, torch_models.gradient, arguments, 1, "tensor")


async def run_jobs(place, *jobs):
    """Run jobs to their ends, by key."""
    for job in jobs:
        await place.submit(job)
    found = [await place.next() for _ in jobs]
    return {one.job_id: one for one in found}


def run_cell(members, layout, *jobs, limits=LIMITS):
    """Run jobs on a cell; return what they came to, and how often its group was formed."""

    async def run():
        async with cell(members, layout, limits=limits, program=PLAIN) as place:
            return await run_jobs(place, *jobs), place.generation

    return asyncio.run(run())


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    folder = tmp_path_factory.mktemp("members")
    found = [NetworkShard(folder / name, MEMBER) for name in "ab"]
    yield found
    for one in found:
        one.kill()


@pytest.fixture
def members(started):
    for one in started:
        if one.process.poll() is not None:
            one.start()
    return started


def places(members):
    return [one.place for one in members]


async def test_values_go_to_each_member_once_whatever_names_them():
    async with cell(2, Leading(), limits=LIMITS, program=PLAIN) as place:
        values = [await place.put({"w": [float(n)] * 10}) for n in range(2)]
        jobs = [make_job(str(n), parameters=values[n // 3]) for n in range(6)]
        found = await run_jobs(place, *jobs)
        kept = [list(one.inputs.folder.iterdir()) for one in place.members]
    assert {one.value["rank"] for one in found.values()} == {0}
    assert [len(files) for files in kept] == [3, 3]  # two values, one source
    assert place.generation == 1


@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("fate", "at"),
    [("kill", "1"), ("stop", "1")]
    + [
        pytest.param(fate, at, marks=pytest.mark.slow)
        for fate in ("kill", "stop")
        for at in ("open", "join", "0")
    ],
)
def test_member_that_dies_or_hangs_is_replaced_and_its_order_is_done(
    tmp_path, fate, at, rank
):
    layout = Fated(str(tmp_path), fate, at, rank)
    found, generation = run_cell(2, layout, *map(make_job, "abc"))
    assert [found[key].value for key in "abc"] == [ANSWER] * 3
    assert generation == (1 if at in {"open", "join"} else 2)
    assert (tmp_path / at).exists()


def test_order_that_kills_each_group_ends_the_wait(tmp_path):
    limits = learn.CellLimits(order_s=0.5, lease_s=1.5, form_s=20.0)
    layout = Fated(str(tmp_path), "stop", "0")

    async def run():
        async with cell(2, layout, limits=limits, program=PLAIN) as place:
            await place.submit(make_job())
            while place.generation < 3:
                for one in tmp_path.iterdir():
                    one.unlink(missing_ok=True)
                await asyncio.sleep(0.01)
            await place.next()

    with pytest.raises(UnreachableError, match="lost 3 times") as caught:
        asyncio.run(run())
    assert caught.value.code == "STO-T037"


def test_researchers_error_is_his_and_the_next_order_is_done(tmp_path):
    found, generation = run_cell(2, Fated(str(tmp_path), "raise"), *map(make_job, "ab"))
    assert isinstance(found["a"].error, UserError)
    assert found["a"].error.exception_type == "ValueError"
    assert (found["b"].value, generation) == (ANSWER, 2)


def test_what_a_layout_refuses_ends_the_run(tmp_path):
    with pytest.raises(UsageError, match="no plan for this model"):
        run_cell(2, Fated(str(tmp_path), "refuse"), make_job())


@pytest.mark.parametrize(
    ("function", "level"), [(print, "tensor"), (make_job, "numeric")]
)
def test_other_work_than_kernels_of_torch_models_is_refused(function, level):
    with pytest.raises(UsageError, match="STO-T040"):
        run_cell(1, Leading(), Job("a", function, {}, 1, level))


def test_members_of_different_versions_are_named():
    with pytest.raises(UsageError, match=r"'torch': '0\.0'") as caught:
        run_cell(2, Lying(), make_job())
    assert caught.value.code == "STO-C054"


def test_input_that_changed_on_a_members_disk_is_refused_and_staged_again():
    async def run():
        async with cell(2, Leading(), limits=LIMITS, program=PLAIN) as place:
            await run_jobs(place, make_job("a"))
            (kept,) = place.members[1].inputs.folder.iterdir()
            kept.write_bytes(b"another model")
            with pytest.raises(StoiloError, match="rank 1") as caught:
                await run_jobs(place, make_job("b"))
            return caught.value.code, await run_jobs(place, make_job("c"))

    code, found = asyncio.run(run())
    assert (code, found["c"].value) == ("STO-T011", ANSWER)


def test_another_token_is_refused_at_once(members):
    first, second = places(members)
    wrong = [first, replace(second, token="x" * 43)]
    with pytest.raises(DeniedError) as caught:
        run_cell(wrong, Leading(), make_job())
    assert caught.value.code == "STO-R001"


def test_half_open_socket_is_given_up(members):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        mute = replace(members[1].place, shard=address)
        began = time.monotonic()
        with pytest.raises(UnreachableError, match="is gone"):
            run_cell([members[0].place, mute], Leading(), make_job(), limits=HASTY)
    assert time.monotonic() - began < 30  # not the minutes that a cell may take


async def test_killed_member_that_is_started_again_goes_on(members):
    async with cell(places(members), Leading(), limits=LIMITS) as place:
        await run_jobs(place, make_job("a"))
        members[1].kill()
        await place.submit(make_job("b"))
        await asyncio.sleep(0.5)
        members[1].start()
        ending = await place.next()
    assert (ending.value, place.generation) == (ANSWER, 2)


@pytest.mark.slow
async def test_member_that_is_silent_for_longer_than_its_lease_comes_back(members):
    async with cell(places(members), Leading(), limits=LIMITS) as place:
        await run_jobs(place, make_job("a"))
        members[1].process.send_signal(signal.SIGSTOP)
        await place.submit(make_job("b"))
        await asyncio.sleep(4.0)
        members[1].process.send_signal(signal.SIGCONT)
        ending = await place.next()
    assert (ending.value, place.generation) == (ANSWER, 2)


async def test_killed_member_that_stays_away_ends_the_wait(members):
    async with cell(places(members), Leading(), limits=HASTY) as place:
        await run_jobs(place, make_job("a"))
        members[1].kill()
        await place.submit(make_job("b"))
        with pytest.raises(UnreachableError, match="is gone"):
            await place.next()


async def test_busy_members_are_free_when_their_cell_is_closed(members):
    async with cell(places(members), Leading(), limits=LIMITS) as place:
        await run_jobs(place, make_job("a"))
        with pytest.raises(UnreachableError, match="is busy"):
            await asyncio.to_thread(
                run_cell, places(members), Leading(), make_job(), limits=HASTY
            )
    found, _ = await asyncio.to_thread(run_cell, places(members), Leading(), make_job())
    assert found["a"].value == ANSWER


def test_members_are_somebody_and_each_of_them_once(members):
    for nobody in (0, [], [members[0].place] * 2):
        with pytest.raises(UsageError, match="each of them once"):
            cell(nobody)

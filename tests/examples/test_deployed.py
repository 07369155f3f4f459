"""Examples on a project's volunteers: gate, log and jail, one leaf an attempt."""

import asyncio
from pathlib import Path

import pytest

import stoilo
from stoilo.client.session import Journal
from stoilo.testing.deployment import Deployment

pytestmark = pytest.mark.slow

CANDIDATES = 10


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    with Deployment(
        tmp_path_factory.mktemp("examples") / "data", volunteers=2
    ) as running:
        yield running


async def attempts_of(conn):
    tasks = [conn.restore_task(entry.task_id) for entry in conn.recent_tasks(1000)]
    found = [await task.status() for task in tasks]
    return {(s.task_id, s.attempt): s.log_index for s in found if s.logged}


def test_search_by_evolution_trains_its_candidates_on_volunteers(
    deployment, example, tmp_path
):
    evolution = example("architecture_search")

    async def search():
        journal = Journal(tmp_path / "journal")
        file = deployment.line.connection
        async with await stoilo.connect(file, journal=journal) as conn:
            seen = await evolution.search(conn, tasks=CANDIDATES)
            return seen, await attempts_of(conn)

    seen, leaves = asyncio.run(search())
    assert len(seen) == len(leaves) == len(set(leaves.values())) == CANDIDATES
    here = [evolution.score(evolution.call_of(one.architecture)) for one in seen]
    assert [one.score for one in seen] == here


def test_script_of_tasks_runs_on_the_project_that_is_named(deployment, example):
    file = Path(deployment.line.connection)
    asyncio.run(example("commandline").attend(example("low_level").main, file))


def test_notebook_of_the_thesis_trains_on_volunteers(deployment, runner, folder):
    notebook = runner.execute(
        folder / "notebooks" / "ddl.ipynb", Path(deployment.line.connection)
    )
    printed = str(notebook)
    assert "by dataset: accuracy" in printed
    assert "stoilo.connect" in printed


LISTING_4 = "44814764c91bf9ef426c4aa899df974f"  # the thesis's own flavor


def count_weights(call):
    from torchvision import models  # noqa: PLC0415 - where the task runs

    return sum(p.numel() for p in models.get_model(call["name"]).parameters())


async def run_on_listing_4(file):
    async with await stoilo.connect(file) as conn:
        call = {"name": "squeezenet1_1"}
        return await conn.create_task(count_weights, call, flavor=LISTING_4).result()


def test_resnet18_of_torchvision_trains_on_three_volunteers(tmp_path, runner, folder):
    with Deployment(tmp_path / "data", volunteers=3) as running:
        notebook = runner.execute(
            folder / "notebooks" / "torchvision_resnet18.ipynb",
            Path(running.line.connection),
        )
        weights = asyncio.run(run_on_listing_4(running.line.connection))
    assert "accuracy by volunteers" in str(notebook)
    assert weights == 1_235_496

"""Levels, opt-ins and quorums with two volunteers' clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stoilo.core.codec.skeleton import decode
from tests.support.boinc import BoincClient
from tests.support.boincproject import TWO_COPIES, BoincProject

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

NUMERIC = b"""
import numpy as np

def task(kwargs):
    return float(np.arange(kwargs["rounds"]).sum())
"""


@pytest.fixture(scope="module")
def project(frozen_numeric: Path) -> Iterator[BoincProject]:
    with BoincProject(frozen_numeric) as made:
        yield made


@pytest.fixture(scope="module")
def modest(project: BoincProject) -> Iterator[BoincClient]:
    """Return the client of somebody who has opted in to nothing."""
    with project.client() as client:
        yield client


@pytest.fixture(scope="module")
def open_minded(project: BoincProject, modest: BoincClient) -> Iterator[BoincClient]:
    """Return the client of somebody who allows `numeric`, there and here."""
    del modest  # is there before
    client = project.client(level="numeric")
    client.attach()
    client.opt_in("numeric")
    with client:
        yield client


def polls(client: BoincClient) -> int:
    return client.messages().count("Scheduler request completed: got 0 new tasks")


def test_volunteer_without_opt_in_is_sent_nothing_above_pure(
    project: BoincProject, modest: BoincClient
) -> None:
    modest.wait_for(lambda: polls(modest) >= 1)
    task = project.submit(NUMERIC, {"rounds": 10})
    before = polls(modest)
    modest.wait_for(lambda: polls(modest) >= before + 2)
    assert not modest.tasks()
    assert project.researcher.poll(task).state == "running"
    project.researcher.cancel(task)


def test_quorum_of_two_clients_agrees(
    project: BoincProject, modest: BoincClient, open_minded: BoincClient
) -> None:
    task = project.submit(arguments={"rounds": 1000}, redundancy=TWO_COPIES)
    project.wait(task, open_minded)
    for client in (modest, open_minded):
        client.wait_for(lambda it=client: f"Starting task {task}" in it.messages())


def test_two_levels_run_on_one_client(
    project: BoincProject, open_minded: BoincClient
) -> None:
    task = project.submit(NUMERIC, {"rounds": 10})
    answer = project.wait(task, open_minded)
    assert decode(answer.value) == 45.0
    flavors = [p for p in (open_minded.home / "flavors").iterdir() if p.is_dir()]
    assert len(flavors) == 2

"""A task's life under what people and accidents do to the client and its tasks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stoilo.testing.boinc import BoincClient
from stoilo.testing.boincproject import BoincProject
from stoilo.testing.jailwatch import jailed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LONG = {"rounds": 100_000_000}  # some ten seconds
ENDLESS = {"rounds": 10**12}


@pytest.fixture(scope="module")
def client(project: BoincProject) -> Iterator[BoincClient]:
    with project.client() as made:
        yield made


@pytest.fixture(autouse=True)
def empty(client: BoincClient) -> None:
    """Begin without tasks, and without waiting for what an earlier failure put off."""
    client.tell_project("update")
    client.wait_for(lambda: not client.tasks())


def running(client: BoincClient) -> str:
    """Return the name of the copy whose jailed process has been seen."""
    client.wait_for(lambda: next(jailed(client), None))
    return client.tasks()[0].name


def test_client_that_dies_in_mid_task_finishes_it_after_its_restart(
    project: BoincProject, client: BoincClient
) -> None:
    task = project.submit(arguments=LONG)
    name = running(client)
    client.kill()  # fails when anything of the task outlives it
    assert not list(client.directory.glob("slots/*/boinc_finish_called"))
    client.start()
    answer = project.researcher.wait(task, 180)
    assert answer.state == "succeeded", client.log_tail()
    assert [copy.name for copy in answer.copies] == [name]


def test_lost_copy_is_sent_again_after_a_reset(
    project: BoincProject, client: BoincClient
) -> None:
    task = project.submit(arguments=LONG)
    name = running(client)
    client.tell_project("reset")
    client.wait_for(lambda: not any(jailed(client)))
    client.tell_project("update")
    client.wait_for(lambda: client.messages().count(f"Starting task {name}") == 2)
    assert project.researcher.wait(task, 180).state == "succeeded", client.log_tail()


def test_aborted_task_ends_with_its_processes(
    project: BoincProject, client: BoincClient
) -> None:
    task = project.submit(arguments=ENDLESS)
    name = running(client)
    client.tell_task(name, "abort")
    client.wait_for(lambda: not client.family())
    client.tell_project("update")
    client.wait_for(
        lambda: project.researcher.poll(task).copies[0].outcome == "client_error"
    )
    project.researcher.cancel(task)

"""A task's life under what people and accidents do to the client and its tasks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoilo.core.skeleton import decode
from stoilo.testing.boinc import BoincClient
from stoilo.testing.boincproject import BoincProject
from stoilo.testing.jailwatch import jailed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

LONG = {"rounds": 60_000_000}  # some seconds
WALK = b"""
def task(kwargs, state=None):
    ran = 0
    state = state or {"steps": 0, "value": 1}
    while state["steps"] < kwargs["steps"]:
        value, steps = state["value"], state["steps"] + 1
        for number in range(4_000_000):
            value = (value * 31 + number) % 1000003
        done = steps / kwargs["steps"]
        state = {"steps": steps, "value": value, "fraction_done": done}
        ran += 1
        yield state
    return {"steps": state["steps"], "ran": ran}
"""
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


def state_of(pid: int) -> str:
    """Return a process's state and the processor time that it has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return f"{fields[0]} {fields[11]} {fields[12]}"


def test_suspended_task_stands_still_and_goes_on(
    project: BoincProject, client: BoincClient
) -> None:
    task = project.submit(arguments=LONG)
    pid, _ = client.wait_for(lambda: next(jailed(client), None))
    name = client.tasks()[0].name
    client.tell_task(name, "suspend")
    client.wait_for(lambda: state_of(pid).startswith("T"))
    stopped = state_of(pid)
    client.wait_for(lambda: client.tasks()[0].active == "SUSPENDED")
    time.sleep(2.0)  # in which it would have used some of the processor
    assert state_of(pid) == stopped
    client.tell_task(name, "resume")
    project.wait(task, client)


def test_task_goes_on_from_what_it_kept_after_the_client_was_killed(
    project: BoincProject, client: BoincClient
) -> None:
    task = project.submit(WALK, {"steps": 30})
    client.wait_for(
        lambda: any(one.number("CPU time at last checkpoint") for one in client.tasks())
    )
    (shown,) = client.tasks()
    assert 0 < shown.number("fraction done") < 1
    client.kill()  # fails when anything of the task outlives it
    assert not list(client.directory.glob("slots/*/boinc_finish_called"))
    client.start()
    answer = project.wait(task, client)
    assert [copy.name for copy in answer.copies] == [shown.name]
    value = decode(answer.value)
    assert (value["steps"], value["ran"] < 30) == (30, True)


def test_lost_copy_is_sent_again_after_a_reset(
    project: BoincProject, client: BoincClient
) -> None:
    task = project.submit(arguments=LONG)
    name = running(client)
    client.tell_project("reset")
    client.wait_for(lambda: not any(jailed(client)))
    client.tell_project("update")
    client.wait_for(lambda: client.messages().count(f"Starting task {name}") == 2)
    project.wait(task, client)


def test_aborted_task_ends_with_its_processes(
    project: BoincProject, client: BoincClient
) -> None:
    task = project.submit(arguments=ENDLESS)
    name = running(client)
    client.tell_task(name, "abort")
    client.wait_for(lambda: not client.family())
    client.tell_project("update")
    client.wait_for(
        lambda: project.researcher.poll(task).copies[0].outcome == "aborted"
    )
    project.researcher.cancel(task)

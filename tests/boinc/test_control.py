"""A task's life under what people and accidents do to the client and its tasks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoilo.core.codec.skeleton import decode
from stoilo.core.rpc import tasks_pb2 as pb
from tests.support.boinc import BoincClient
from tests.support.boincproject import BoincProject
from tests.support.boincscenes import Scenes
from tests.support.boincslot import state_of
from tests.support.jailwatch import jailed

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


def running(client: BoincClient) -> str:
    """Return the name of the copy whose jailed process has been seen."""
    client.wait_for(lambda: next(jailed(client), None))
    return client.tasks()[0].name


def processor_time(pid: int) -> tuple[int, int]:
    """Return what a process has used in user and system mode, clock ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]), int(fields[12])


def suspend_and_resume(
    project: BoincProject, client: BoincClient, task: str
) -> pb.PollTaskResponse:
    """Return the answer of a task that stood still for a while."""
    pid, _ = client.wait_for(lambda: next(jailed(client), None))
    name = client.tasks()[0].name
    client.tell_task(name, "suspend")
    client.wait_for(lambda: state_of(pid) == "T")
    used = processor_time(pid)
    client.wait_for(lambda: client.tasks()[0].active == "SUSPENDED")
    time.sleep(2.0)  # in which it would have used some of the processor
    assert (state_of(pid), processor_time(pid)) == ("T", used)
    client.tell_task(name, "resume")
    return project.wait(task, client)


def stand_still(project: BoincProject) -> None:
    with project.client() as client:
        suspend_and_resume(project, client, project.submit(arguments=LONG))


def stand_still_between_states(project: BoincProject) -> None:
    with project.client() as client:
        task = project.submit(WALK, {"steps": 30})
        answer = suspend_and_resume(project, client, task)
        assert decode(answer.value) == {"steps": 30, "ran": 30}


def go_on_after_a_kill(project: BoincProject) -> None:
    with project.client() as client:
        task = project.submit(WALK, {"steps": 30})
        client.wait_for(
            lambda: any(
                one.number("CPU time at last checkpoint") for one in client.tasks()
            )
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


def lose_a_copy(project: BoincProject) -> None:
    with project.client() as client:
        task = project.submit(arguments=LONG)
        name = running(client)
        client.tell_project("reset")
        client.wait_for(lambda: not any(jailed(client)))
        client.tell_project("update")
        client.wait_for(lambda: client.messages().count(f"Starting task {name}") == 2)
        project.wait(task, client)


def abort(project: BoincProject) -> None:
    with project.client() as client:
        task = project.submit(arguments=ENDLESS)
        name = running(client)
        client.tell_task(name, "abort")
        client.wait_for(lambda: not client.family())
        client.tell_project("update")
        client.wait_for(
            lambda: project.researcher.poll(task).copies[0].outcome == "aborted"
        )
        project.researcher.cancel(task)


def cancel(project: BoincProject) -> None:
    with project.client() as client:
        task = project.submit(arguments=ENDLESS)
        running(client)
        project.researcher.cancel(task)
        client.tell_project("update")
        client.wait_for(lambda: not client.family())
        client.wait_for(lambda: not client.tasks())  # reported and acknowledged


SCENES = (
    stand_still,
    stand_still_between_states,
    go_on_after_a_kill,
    lose_a_copy,
    abort,
    cancel,
)


@pytest.fixture(scope="module")
def scenes(frozen: Path) -> Iterator[Scenes]:
    with Scenes(frozen, SCENES) as made:
        yield made


def test_suspended_task_stands_still_and_goes_on(scenes: Scenes) -> None:
    scenes.check(stand_still)


def test_suspended_task_that_yields_states_is_not_begun_again(scenes: Scenes) -> None:
    scenes.check(stand_still_between_states)


def test_task_goes_on_from_what_it_kept_after_the_client_was_killed(
    scenes: Scenes,
) -> None:
    scenes.check(go_on_after_a_kill)


def test_lost_copy_is_sent_again_after_a_reset(scenes: Scenes) -> None:
    scenes.check(lose_a_copy)


def test_aborted_task_ends_with_its_processes(scenes: Scenes) -> None:
    scenes.check(abort)


def test_running_task_that_its_researcher_cancels_ends_with_its_processes(
    scenes: Scenes,
) -> None:
    scenes.check(cancel)

"""The runtime API under the real client: a task that yields states, suspended and resumed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stoilo.core.skeleton import decode
from stoilo.testing.boinc import BoincClient
from stoilo.testing.boincproject import BoincProject
from stoilo.testing.boincslot import state_of
from stoilo.testing.jailwatch import jailed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

WALK = b"""
def task(kwargs, state=None):
    state = state or {"done": 0, "total": 0, "fraction_done": 0.0}
    while state["done"] < kwargs["steps"]:
        total = state["total"] + sum(range(1000000))
        done = state["done"] + 1
        fraction = done / kwargs["steps"]
        state = {"done": done, "total": total, "fraction_done": fraction}
        yield state
    return state["total"]
"""
STEPS = 600  # some ten seconds
ANSWER = STEPS * sum(range(1_000_000))


@pytest.fixture
def client(project: BoincProject) -> Iterator[BoincClient]:
    with project.client() as made:
        yield made


def child_of(client: BoincClient) -> int:
    """Return the pid of the jailed child, once there is one."""
    pid, _ = client.wait_for(lambda: next(jailed(client), None))
    return pid


def test_suspended_task_stands_still_and_goes_on(
    project: BoincProject, client: BoincClient
) -> None:
    task = project.submit(WALK, {"steps": STEPS})
    child = child_of(client)
    name = client.tasks()[0].name
    client.tell_task(name, "suspend")
    client.wait_for(lambda: state_of(child) == "T")
    client.tell_task(name, "resume")
    client.wait_for(lambda: state_of(child) == "R")
    answer = project.researcher.wait(task, 180)
    assert answer.state == "succeeded", client.log_tail()
    assert decode(answer.value) == ANSWER

"""What a task's status says in words."""

from __future__ import annotations

import pytest

from stoilo.client.status import explain, read_status
from stoilo.core.rpc import tasks_pb2 as pb


def status(state: str = "running", *copies: pb.CopyStatus):
    return read_status(pb.PollTaskResponse(task_id="t", state=state, copies=copies))


def copy(state: str = "in_progress", done: float = 0.4, cpu_s: float = 12.0):
    return pb.CopyStatus(name="r", state=state, fraction_done=done, cpu_s=cpu_s)


def test_progress_of_running_copies_is_explained() -> None:
    words = explain(status("running", copy(done=0.1, cpu_s=1.0), copy()))
    assert "about 40% done; 13.0 s of processor time so far" in words


@pytest.mark.parametrize("copies", [[], [copy(done=0.0, cpu_s=0.0)]])
def test_nothing_is_said_where_nothing_is_known(copies) -> None:
    assert "done" not in explain(status("running", *copies))


def test_copy_that_is_over_and_task_that_has_ended_are_not_on_their_way() -> None:
    assert status("running", copy("over")).fraction_done == 0.0
    assert status("succeeded", copy()).fraction_done == 0.0


@pytest.mark.parametrize("done", [-1.0, 2.0, float("nan"), float("inf")])
def test_number_out_of_bounds_is_none(done: float) -> None:
    assert status("running", copy(done=done)).copies[0].fraction_done == 0.0

"""What a person tells a volunteer that runs, and what it shows."""

from __future__ import annotations

import msgspec

from stoilo.executor.volunteer.status import read_control, read_status, write_control
from stoilo.server.engines.embedded.engine import EngineOptions
from stoilo.server.engines.embedded.scheduling.dispatch import Pace
from tests.support.engine import EchoExecutor
from tests.support.volunteers import VolunteerWorld


def steer(world, user, **changes):
    directory = world.directory / user
    write_control(
        directory, msgspec.structs.replace(read_control(directory), **changes)
    )


def test_suspended_volunteer_runs_nothing_until_resumed(world, wait_until):
    executor = EchoExecutor(seconds=60)
    world.join("a", executor)
    world.ask("w_1")
    wait_until(lambda: world.engine.status("w_1").results[0].sent_at)
    steer(world, "a", suspended=True)
    wait_until(lambda: executor.suspended)
    wait_until(lambda: read_status(world.directory / "a").suspended)
    steer(world, "a", suspended=False)
    wait_until(lambda: not executor.suspended)
    assert (executor.done, executor.cancelled) == ([], [])  # held, not ended


def test_update_calls_now_whatever_the_project_said(tmp_path, wait_until):
    world = VolunteerWorld(tmp_path, EngineOptions(pace=Pace(next_rpc_delay_s=3000.0)))
    try:
        world.join("a")
        wait_until(lambda: read_status(tmp_path / "a").last_contact)
        before = read_status(tmp_path / "a").last_contact
        steer(world, "a", updates=1)
        wait_until(lambda: read_status(tmp_path / "a").last_contact > before)
    finally:
        world.close()


def test_status_is_read_beside_a_running_volunteer(world, wait_until):
    executor = EchoExecutor(seconds=60)
    world.join("a", executor)
    world.ask("w_1")
    directory = world.directory / "a"
    wait_until(lambda: any(c.running for c in read_status(directory).copies))
    status = read_status(directory)
    assert (status.running, status.project) == (True, world.server.url)
    assert status.host_id > 0
    assert (status.copies[0].result, status.copies[0].app) == ("w_1_0", "pure")
    world.leave()
    assert read_status(directory).copies[0].running is False

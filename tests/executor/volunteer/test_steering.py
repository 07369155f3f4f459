"""What a person tells a volunteer that runs, and what it shows."""

from __future__ import annotations

import time

import msgspec

from stoilo.executor.volunteer.preferences import OVERRIDE, SHARED, PreferenceFiles
from stoilo.executor.volunteer.status import read_control, read_status, write_control
from stoilo.server.engines.embedded.engine import EngineOptions
from stoilo.server.engines.embedded.scheduling.dispatch import Pace
from stoilo.server.engines.interface import OutcomeKind
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


NEVER = "<start_hour>1</start_hour><end_hour>2</end_hour>"


def test_volunteer_runs_nothing_at_hours_that_its_user_excludes(world, wait_until):
    executor, hours = EchoExecutor(), [12.0]
    directory = world.directory / "a"
    directory.mkdir()
    (directory / OVERRIDE).write_text(NEVER)
    preferences = PreferenceFiles(directory, lambda: hours[0])
    world.join("a", executor, preferences=preferences)
    world.ask("w_1")
    wait_until(lambda: read_status(directory).last_contact)
    assert executor.done == []
    hours[0] = 1.5
    assert world.wait("w_1") == [OutcomeKind.CANONICAL]


def test_preferences_broken_at_any_moment_only_stop_computing(world, wait_until):
    """A file is half there while somebody saves it, and not only between two turns."""
    directory = world.directory / "a"
    directory.mkdir()
    volunteer = world.join("a", EchoExecutor())
    wait_until(lambda: read_status(directory).last_contact)
    (directory / OVERRIDE).write_text("<global_preferences><start_ho")
    assert (volunteer._slots(), volunteer._has_room()) == (0, False)
    world.ask("w_1")
    (directory / OVERRIDE).write_text("")
    assert world.wait("w_1") == [OutcomeKind.CANONICAL]


def test_preferences_travel_by_the_project_to_the_users_other_computer(
    world, wait_until
):
    first, second = world.directory / "a", world.directory / "b"
    first.mkdir()
    text = f"<mod_time>{int(time.time())}</mod_time><max_ncpus_pct>37</max_ncpus_pct>"
    (first / SHARED).write_text(f"<global_preferences>{text}</global_preferences>")
    for name in ("a", "b"):
        world.join(name, key=world.key("a", strong=name == "a"))
    wait_until((second / SHARED).exists)
    assert "<max_ncpus_pct>37" in (second / SHARED).read_text()

"""What a running volunteer shows, what a person asks of it: files that may be anything."""

from __future__ import annotations

import json
import os

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import InternalError
from stoilo.executor.volunteer.ledger import Ledger, Phase, ResultRecord, recall
from stoilo.executor.volunteer.status import (
    Control,
    StatusFile,
    read_control,
    read_status,
    write_control,
)

URL = "http://127.0.0.1:1/"


@pytest.fixture
def directory(tmp_path):
    ledger = Ledger(tmp_path / "project", URL)
    copy = ResultRecord("w_1_0", "w_1", "pure", 50, (), "up", f"{URL}up", 1000)
    ledger.add(copy)
    ledger.add(msgspec.structs.replace(copy, result="w_2_0", deadline=20))
    ledger.save(msgspec.structs.replace(copy, phase=Phase.FAILED, code="STO-X005"))
    ledger.close()
    return tmp_path / "project"


def test_copies_are_shown_without_a_running_volunteer(directory):
    status = read_status(directory)
    assert [copy.result for copy in status.copies] == ["w_2_0", "w_1_0"]
    assert (status.copies[1].phase, status.copies[1].code) == ("failed", "STO-X005")
    assert (status.running, status.project, status.last_contact) == (False, URL, 0.0)


def test_running_volunteer_shows_its_runs(directory):
    standing = StatusFile(directory)
    standing.note_answer()
    standing.write(next_call_s=9.0, running=("w_2_0",), fractions={"w_2_0": 0.25})
    status = read_status(directory)
    assert status.running
    assert status.copies[0].fraction_done == 0.25
    assert status.last_contact > 0
    standing.leave()
    assert not read_status(directory).running


def test_pid_that_came_again_is_not_the_volunteer(directory):
    standing = StatusFile(directory)
    standing.write(next_call_s=0.0, running=(), fractions={})
    said = json.loads((directory / "standing.json").read_bytes())
    assert said["pid"] == os.getpid()
    (directory / "standing.json").write_text(json.dumps(said | {"started": 1}))
    assert not read_status(directory).running


def test_trouble_is_remembered_over_a_restart(directory):
    standing = StatusFile(directory)
    standing.note_trouble("no room")
    standing.leave()
    StatusFile(directory).leave()
    assert read_status(directory).last_error == "no room"


def test_wish_is_noticed_and_a_damaged_one_changes_nothing(directory):
    wish = Control(suspended=True, updates=2)
    write_control(directory, wish)
    file = directory / "control.json"
    assert recall(file, Control, Control()) == wish
    file.write_bytes(b"{")
    assert recall(file, Control, wish) == wish
    with pytest.raises(InternalError, match="STO-X008"):
        read_control(directory)


@given(st.binary(max_size=200))
def test_any_bytes_in_place_of_the_files_end_in_our_error_or_a_status(
    tmp_path_factory, data
):
    folder = tmp_path_factory.mktemp("project")
    for name in ("standing.json", "control.json", "project.json", "host.json"):
        (folder / name).write_bytes(data)
    try:
        read_status(folder)
    except InternalError as error:
        assert error.code == "STO-X008"

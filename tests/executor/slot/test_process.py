"""A slot before a start and after an end: what the task may know, BOINC's exit table."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import InternalError
from stoilo.executor.slot.layout import (
    LaunchFailedError,
    Program,
    PutOffError,
    check_exit,
    copy_in,
    lay_out,
    read_state,
    write_state,
)
from stoilo.executor.verifier.boinc_session import SEGMENT_BYTES
from stoilo.executor.verifier.boinc_slot import parse_init_data
from stoilo.executor.verifier.checkpoints import AppStatus
from stoilo.executor.verifier.workunit import Work


@pytest.fixture
def slot(tmp_path):
    folder = tmp_path / "slots" / "0"
    folder.mkdir(parents=True)
    return folder


def ending_of(slot, code):
    """Return what an end is raised as, None for a finished task."""
    try:
        check_exit(slot, code)
    except InternalError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("code", "files", "ending"),
    [
        (0, {"boinc_finish_called": "0\n"}, None),
        (0, {}, InternalError),
        (0, {"boinc_temporary_exit": "60\nlater\n"}, PutOffError),
        (1, {"boinc_temporary_exit": "60\nlater\n"}, PutOffError),
        (4, {}, LaunchFailedError),
        (4, {"boinc_finish_called": "0\n"}, LaunchFailedError),
        (194, {}, LaunchFailedError),
        (-signal.SIGKILL, {}, InternalError),
        (-signal.SIGTERM, {"boinc_finish_called": "0\n"}, InternalError),
        (-signal.SIGSEGV, {}, LaunchFailedError),
    ],
)
def test_end_counts_as_for_a_boinc_client(slot, code, files, ending):
    for name, text in files.items():
        (slot / name).write_text(text)
    raised = ending_of(slot, code)
    assert (type(raised) if raised else None) is ending
    if isinstance(raised, LaunchFailedError):
        assert raised.exit_status == code


@given(st.binary(max_size=300))
def test_any_temporary_exit_is_a_delay_within_a_day(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("slot")
    (folder / "boinc_temporary_exit").write_bytes(data)
    raised = ending_of(folder, 0)
    assert isinstance(raised, PutOffError)
    assert 0 <= raised.delay_s <= 24 * 3600
    assert len(raised.message) <= 440
    assert "\x1b" not in raised.message


def lay(slot, tmp_path, **changes):
    file = tmp_path / "input"
    file.write_bytes(b"x")
    names = (("arguments", file), ("boinc_finish_called", file), ("../up", file))
    program = Program(tmp_path / "launcher", tmp_path / "archive.tar")
    lay_out(slot, Work("r_0", "w_1", "pure", names), program, **changes)


def test_slot_holds_what_a_program_needs_and_no_name_that_a_server_made_up(
    tmp_path, slot
):
    lay(slot, tmp_path)
    assert sorted(path.name for path in slot.iterdir()) == [
        "arguments",
        "boinc_mmap_file",
        "init_data.xml",
        "stoilo-verifier.tar",
    ]
    assert (slot / "boinc_mmap_file").read_bytes() == bytes(SEGMENT_BYTES)
    assert "<soft_link>../../input</soft_link>" in (slot / "arguments").read_text()


def test_task_is_told_neither_key_nor_user(tmp_path, slot):
    lay(slot, tmp_path)
    text = (slot / "init_data.xml").read_text()
    for word in ("authenticator", "user_name", "host_info", "passwd", str(tmp_path)):
        assert word not in text


def test_preferences_reach_the_task_as_what_only_lowers(tmp_path, slot):
    wishes = "<max_level>pure</max_level><app_name>gpu</app_name>"
    lay(slot, tmp_path, preferences=wishes, cpu_s=12.5)
    info = parse_init_data((slot / "init_data.xml").read_bytes())
    assert (info.app, info.preferences.max_level) == ("pure", "pure")
    assert (info.result, info.cpu_s) == ("r_0", 12.5)


def test_checkpoint_is_noted_and_found_again(slot):
    assert read_state(slot) == AppStatus()
    write_state(slot, AppStatus(9.0, 7.5, 0.5))
    assert read_state(slot) == AppStatus(7.5, 7.5, 0.5)


@given(st.binary(max_size=300))
def test_any_bytes_in_a_slot_are_no_copy_and_no_checkpoint(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("slot")
    (folder / "init_data.xml").write_bytes(data)
    (folder / "boinc_task_state.xml").write_bytes(data)
    assert copy_in(folder) == ""
    assert 0 <= read_state(folder).fraction_done <= 1


def test_slot_names_its_copy(tmp_path, slot):
    assert copy_in(slot) == ""
    lay(slot, tmp_path)
    assert copy_in(slot) == "r_0"

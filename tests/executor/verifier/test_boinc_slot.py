"""What a slot names stays inside BOINC's directories; what it says is bounded."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import InternalError, TrustError
from stoilo.executor.verifier.boinc_slot import (
    FINISH_FILE,
    MAX_INIT_BYTES,
    RESULT_BEGINS,
    TEMPORARY_EXIT_FILE,
    finish,
    hold_slot,
    parse_init_data,
    put_off,
    read_slot,
    render_soft_link,
)
from tests.support.slots import BoincData

NAMES = (
    b"<app_name>pure</app_name><wu_name>t_1</wu_name><result_name>t_1_0</result_name>"
)


@pytest.fixture
def data(tmp_path):
    return BoincData(tmp_path)


def refused(call, *arguments):
    with pytest.raises(TrustError) as caught:
        call(*arguments)
    return caught.value.code == "STO-F038"


def test_inputs_are_found_through_their_links(data):
    slot = read_slot(data.slot([("admission", b"a"), ("blob_000", b"b")]))
    assert slot.file("admission").read_bytes() == b"a"
    assert slot.file("blob_000").read_bytes() == b"b"
    assert slot.file("proof") is None
    assert (slot.info.app, slot.info.result) == ("pure", "task-1_1_0")


def test_plain_file_is_itself(data):
    directory = data.slot([])
    (directory / "proof").write_bytes(b"proof")
    assert read_slot(directory).file("proof") == directory / "proof"


@pytest.mark.parametrize(
    "target", ["/etc/passwd", "../../../outside", "../../stoilo/optin.toml", "../.."]
)
def test_link_out_of_boincs_directories_is_refused(data, target):
    directory = data.slot([])
    (directory / "proof").write_bytes(render_soft_link(target))
    if target == "../..":
        assert read_slot(directory).file("proof") == data.directory
    else:
        assert refused(read_slot, directory)


def test_link_through_a_planted_symbolic_link_is_refused(data, tmp_path_factory):
    directory = data.slot([])
    (data.project / "away").symlink_to(tmp_path_factory.mktemp("away"))
    text = render_soft_link(f"../../projects/{data.project.name}/away/file")
    (directory / "proof").write_bytes(text)
    assert refused(read_slot, directory)


def test_symbolic_link_in_the_slot_is_refused(data):
    directory = data.slot([])
    (directory / "proof").symlink_to("/etc/passwd")
    assert refused(read_slot, directory)


def test_pipe_in_place_of_the_clients_file_is_refused(data):
    directory = data.slot([])
    (directory / "init_data.xml").unlink()
    os.mkfifo(directory / "init_data.xml")
    assert refused(read_slot, directory)


def test_long_client_file_is_refused(data):
    directory = data.slot([])
    (directory / "init_data.xml").write_bytes(NAMES + b" " * MAX_INIT_BYTES)
    assert refused(read_slot, directory)


def test_preferences_cannot_speak_for_the_client():
    wishes = b"<project_preferences><app_name>gpu</app_name></project_preferences>"
    again = b"</project_preferences><wu_name>x</wu_name></project_preferences>"
    assert parse_init_data(wishes + NAMES).app == "pure"
    assert parse_init_data(wishes + again + NAMES).workunit == "t_1"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("<disk_max_used_gb>2.5</disk_max_used_gb>", 2_500_000_000),
        ("<d_total>1000.0</d_total><disk_max_used_pct>90</disk_max_used_pct>", 900),
        ("<d_total>1e+03</d_total><disk_max_used_pct>500</disk_max_used_pct>", 1000),
        ("<disk_max_used_gb>nan</disk_max_used_gb>", None),
        ("<disk_max_used_gb>-1</disk_max_used_gb>", None),
        ("<disk_max_used_gb>1e+99</disk_max_used_gb>", None),
    ],
)
def test_disk_preference_is_the_lowest_that_is_said(text, expected):
    assert parse_init_data(NAMES + text.encode()).disk_bytes == expected


@given(st.binary(max_size=300))
def test_any_bytes_end_in_a_value_or_our_error(text):
    for whole in (text, NAMES + text):
        try:
            parse_init_data(whole)
        except TrustError as error:
            assert error.code == "STO-F038"


def test_finished_slot_has_result_then_finish_file(data):
    slot = read_slot(data.slot([]))
    finish(slot, b"result")
    assert (data.project / "task-1_1_0_out").read_bytes() == b"result"
    assert (slot.directory / FINISH_FILE).read_bytes() == b"0\n"


def test_result_that_cannot_be_written_leaves_no_finish_file(data):
    slot = read_slot(data.slot([]))
    (slot.directory / "result.part").mkdir()
    with pytest.raises(InternalError) as caught:
        finish(slot, b"result")
    assert caught.value.code == "STO-X008"
    assert not (slot.directory / FINISH_FILE).exists()


@pytest.mark.parametrize(
    "target",
    [
        "../../client_state.xml",
        "../../remote_hosts.cfg",
        "../../projects/other.example_app/app_info.xml",
        "../../projects/other.example_app/task-1_1_0.xml",
        "../../projects/other.example_app/below/task-1_1_0_out",
        "../../slots/1/task-1_1_0_out",
    ],
)
def test_result_is_written_nowhere_but_under_its_own_name_in_a_project(data, target):
    slot = read_slot(data.slot([]))
    place = slot.directory / target
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b"somebody's")
    (slot.directory / "result").write_bytes(render_soft_link(target))
    assert refused(finish, slot, b"result")
    assert place.read_bytes() == b"somebody's"
    assert not (slot.directory / FINISH_FILE).exists()


def test_result_replaces_no_file_that_is_not_one(data):
    slot = read_slot(data.slot([]))
    place = data.directory / "projects" / "other.example_app" / "task-1_1_0_8"
    place.parent.mkdir()
    place.write_bytes(b"\x7fELF, a program of another project")
    link = render_soft_link("../../projects/other.example_app/task-1_1_0_8")
    (slot.directory / "result").write_bytes(link)
    assert refused(finish, slot, b"result")
    assert place.read_bytes().startswith(b"\x7fELF")


def test_result_of_an_earlier_start_is_replaced(data):
    slot = read_slot(data.slot([]))
    finish(slot, b'{"format":"stoilo-result/1"}\n')
    finish(slot, b"second")
    assert (data.project / "task-1_1_0_out").read_bytes() == b"second"


def test_planted_link_in_the_result_s_way_is_not_followed(data, tmp_path_factory):
    slot = read_slot(data.slot([]))
    other = tmp_path_factory.mktemp("other") / "file"
    other.write_bytes(b"somebody's")
    (slot.directory / "result.part").symlink_to(other)
    finish(slot, b"result")
    assert other.read_bytes() == b"somebody's"


@pytest.mark.parametrize("name", ["admission", "init_data.xml", "flavor"])
def test_directory_in_place_of_a_file_is_refused(data, name):
    directory = data.slot([])
    (directory / name).unlink(missing_ok=True)
    (directory / name / "below").mkdir(parents=True)
    assert refused(read_slot, directory)


def test_put_off_says_when_and_why_in_one_line(data):
    slot = read_slot(data.slot([]))
    put_off(slot, 10**9, "two\nlines")
    text = (slot.directory / TEMPORARY_EXIT_FILE).read_text()
    assert text == "86400\ntwo lines\n"


def test_finish_takes_back_what_put_the_task_off(data):
    slot = read_slot(data.slot([]))
    put_off(slot, 300, "trouble")
    finish(slot, RESULT_BEGINS[1] + b"}")
    assert not (slot.directory / TEMPORARY_EXIT_FILE).exists()
    assert (slot.directory / FINISH_FILE).exists()


def test_slot_is_held_by_one_verifier_at_a_time(data):
    slot = read_slot(data.slot([]))
    with hold_slot(slot):
        with pytest.raises(InternalError) as caught, hold_slot(slot):
            pass
        assert caught.value.code == "STO-F038"
    with hold_slot(slot):
        pass

"""The shared memory: BOINC's layout, one message a channel, hostile bytes bounded."""

import os
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import InternalError
from stoilo.executor.slot.process import parse_status, render_control
from stoilo.executor.verifier.boinc_session import (
    CHANNEL_BYTES,
    HEARTBEAT,
    SEGMENT_BYTES,
    Channel,
    Control,
    Segment,
    open_segment,
    parse_control,
)
from stoilo.executor.verifier.checkpoints import AppStatus, render_status

CLIENT_HEARTBEAT = b"<heartbeat/><wss>1.4e+07</wss><max_wss>2.2e+10</max_wss>"


def test_message_lies_where_boinc_puts_it():
    memory = bytearray(SEGMENT_BYTES)
    assert Segment(memory).put(Channel.APP_STATUS, b"<x/>")
    assert memory[5120:5126] == b"\x01<x/>\0"
    assert not any(memory[:5120])
    assert not any(memory[5126:])


def test_full_channel_is_not_overwritten_until_it_is_read():
    memory = bytearray(SEGMENT_BYTES)
    assert Segment(memory).put(Channel.HEARTBEAT, b"one")
    assert not Segment(memory).put(Channel.HEARTBEAT, b"two")
    assert Segment(memory).take(Channel.HEARTBEAT) == b"one"
    assert Segment(memory).take(Channel.HEARTBEAT) is None
    assert Segment(memory).put(Channel.HEARTBEAT, b"two")


@pytest.mark.parametrize("text", [b"x" * (CHANNEL_BYTES - 1), b"a\0b"])
def test_message_that_does_not_fit_is_not_written(text):
    memory = bytearray(SEGMENT_BYTES)
    with pytest.raises(ValueError, match="fit"):
        Segment(memory).put(Channel.HEARTBEAT, text)
    assert not any(memory)


def test_longest_message_stays_in_its_channel():
    memory = bytearray(SEGMENT_BYTES)
    assert Segment(memory).put(Channel.HEARTBEAT, b"x" * (CHANNEL_BYTES - 2))
    assert memory[Channel.APP_STATUS * CHANNEL_BYTES] == 0
    assert Segment(memory).take(Channel.HEARTBEAT) == b"x" * (CHANNEL_BYTES - 2)


@given(st.binary(min_size=1, max_size=CHANNEL_BYTES))
def test_any_segment_can_be_read(data):
    memory = bytearray((data * SEGMENT_BYTES)[:SEGMENT_BYTES])
    for channel in Channel:
        text = Segment(memory).take(channel)
        assert text is None or len(text) < CHANNEL_BYTES
        assert Segment(memory).take(channel) is None


@given(st.binary(max_size=CHANNEL_BYTES))
def test_any_message_ends_in_a_value(text):
    assert parse_control(text) <= set(Control)
    status = parse_status(text)
    assert status is None or 0 <= status.fraction_done <= 1


@pytest.mark.parametrize(
    "number", ["-1", "nan", "1e999", "inf", "", "1" * 19, "1e+99", "0x1"]
)
def test_number_out_of_bounds_is_none(number):
    text = f"<current_cpu_time>{number}</current_cpu_time>".encode()
    assert parse_status(text + b"<checkpoint_cpu_time>1</checkpoint_cpu_time>") is None


def test_clients_own_heartbeat_is_understood():
    assert HEARTBEAT in CLIENT_HEARTBEAT


@given(st.sets(st.sampled_from(Control)))
def test_control_round_trip(wanted):
    assert parse_control(render_control(*wanted)) == wanted


def test_status_round_trip():
    status = AppStatus(12.5, 3.25, 0.5)
    assert parse_status(render_status(status)) == status
    assert b"other_pid" not in render_status(status)  # the client finds it itself


def test_absent_file_is_no_segment(tmp_path):
    assert open_segment(tmp_path / "none") is None


def test_both_sides_see_one_memory(tmp_path):
    path = tmp_path / "m"
    path.write_bytes(bytes(SEGMENT_BYTES))
    with closing(open_segment(path)) as client, closing(open_segment(path)) as app:
        assert client.put(Channel.CONTROL_REQUEST, b"<quit/>")
        assert app.take(Channel.CONTROL_REQUEST) == b"<quit/>"
        assert client.put(Channel.CONTROL_REQUEST, b"<abort/>")


@pytest.mark.parametrize("kind", ["link", "short", "long", "directory", "pipe"])
def test_file_that_no_client_made_is_refused(tmp_path, kind):
    path = tmp_path / "m"
    match kind:
        case "link":
            (tmp_path / "real").write_bytes(bytes(SEGMENT_BYTES))
            path.symlink_to("real")
        case "directory":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case _:
            path.write_bytes(bytes(SEGMENT_BYTES + (1 if kind == "long" else -1)))
    with pytest.raises(InternalError) as caught:
        open_segment(path)
    assert caught.value.code == "STO-F038"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_file_of_somebody_else_is_refused(tmp_path):
    path = tmp_path / "m"
    path.write_bytes(bytes(SEGMENT_BYTES))
    os.chown(path, 12345, 12345)
    with pytest.raises(InternalError, match="of this user"):
        open_segment(path)

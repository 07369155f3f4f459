"""Frames: what is sent comes, and nothing above the bound, cut off or slow does."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import TrustError
from stoilo.core.frames import receive_frame, send_frame

CODE = "STO-K026"


def pair():
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)


@given(st.binary(max_size=2000), st.sampled_from([4, 8]))
def test_frame_that_is_sent_comes_whole(body: bytes, header: int):
    left, right = pair()
    with left, right:
        send_frame(left, body, most=2000, code=CODE, header=header)
        assert receive_frame(right, most=2000, code=CODE, header=header) == body


@given(st.binary(max_size=64))
def test_any_bytes_end_in_a_frame_the_end_or_our_error(data: bytes):
    left, right = pair()
    with left, right:
        left.sendall(data)
        left.close()
        try:
            body = receive_frame(right, most=16, code=CODE)
        except TrustError as error:
            assert error.code == CODE
        else:
            assert body is None or len(body) <= 16


def test_body_above_the_bound_is_refused_by_both_sides_before_it_is_read():
    left, right = pair()
    with left, right:
        with pytest.raises(TrustError):
            send_frame(left, b"12345", most=4, code=CODE)
        left.sendall((5).to_bytes(4, "big"))
        with pytest.raises(TrustError):
            receive_frame(right, most=4, code=CODE)


def test_frame_that_drips_ends_at_the_deadline():
    left, right = pair()
    times = iter([0.0, 1.0, 2.0, 31.0])
    with left, right:
        left.sendall((9).to_bytes(4, "big") + b"1")
        with pytest.raises(TimeoutError):
            receive_frame(
                right, most=9, code=CODE, deadline=3.0, clock=lambda: next(times)
            )

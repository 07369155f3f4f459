"""Frames of progress: bounded, counted, and never mistaken for a result."""

import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.codec import skeleton
from stoilo.core.types import RunLimits
from stoilo.sandbox.process.channel import (
    FRAME_HEADER,
    PROBE_JOB,
    PROGRESS_FLAG,
    FrameTooLargeError,
    Progress,
    Teller,
    largest_state,
    parse_progress,
    render_progress,
    take_progress,
)
from stoilo.sandbox.process.report import JailStatus
from stoilo.sandbox.process.run import encode_probe
from stoilo.sandbox.process.supervisor import Jail

LIMITS = RunLimits(cpu_s=5, wall_s=10, result_bytes=1 << 16)
WRITE = """
import os
def tell(data, flag=1 << 63, length=None):
    size = len(data) if length is None else length
    data = (flag | size).to_bytes(8, "big") + data
    while data:
        data = data[os.write(4, data):]
"""


def framed(data, length=None):
    size = len(data) if length is None else length
    return (PROGRESS_FLAG | size).to_bytes(FRAME_HEADER, "big") + data


@given(st.binary(max_size=400))
def test_any_frame_ends_in_a_value(frame):
    assert isinstance(parse_progress(frame), Progress | None)


@given(
    st.integers(0, 1 << 53),
    st.none() | st.floats(0, 1),
    st.none() | st.binary(max_size=50),
)
def test_progress_round_trip(step, fraction, state):
    progress = Progress(step, fraction, state)
    assert parse_progress(render_progress(progress)) == progress


@pytest.mark.parametrize(
    "fields",
    [
        {"step": -1, "fraction": None, "state": None},
        {"step": True, "fraction": None, "state": None},
        {"step": 1, "fraction": 1.5, "state": None},
        {"step": 1, "fraction": float("nan"), "state": None},
        {"step": 1, "fraction": None, "state": "text"},
        [1, None, None],
    ],
)
def test_fields_out_of_bounds_are_no_progress(fields):
    assert parse_progress(skeleton.encode(fields)) is None


@given(st.binary(max_size=300), st.sampled_from([None, 64, 1 << 20]))
def test_any_bytes_are_taken_or_left(data, most):
    buffer = bytearray(data)
    try:
        frame = take_progress(buffer, most)
    except FrameTooLargeError:
        frame = None
    taken = 0 if frame is None else FRAME_HEADER + len(frame)
    assert buffer == data[taken:]


def test_result_behind_progress_stays():
    result = (3).to_bytes(FRAME_HEADER, "big") + b"abc"
    buffer = bytearray(framed(b"one") + framed(b"two") + result)
    assert [take_progress(buffer, 1 << 20) for _ in range(3)] == [b"one", b"two", None]
    assert buffer == result


def test_teller_keeps_the_gap():
    frames, now = [], [0.0]
    teller = Teller(frames.append, 2.0, 9, lambda: now[0])
    for step, now[0] in enumerate((0.0, 1.9, 2.0, 3.0, 4.0)):
        teller.tell(Progress(step))
    assert [parse_progress(frame).step for frame in frames] == [0, 2, 4]


def test_state_that_is_too_large_is_told_of_without_it():
    frames = []
    teller = Teller(frames.append, 0.0, 3, lambda: 0.0)
    for state in (b"abc", b"abcd"):
        teller.tell(Progress(1, 0.5, state))
    assert [parse_progress(one).state for one in frames] == [b"abc", None]


@pytest.fixture(scope="module")
def jail(pure):
    with Jail(pure, PROBE_JOB, preload=("os", "time")) as made:
        yield made


def run(jail, source, *, hear=True, limits=LIMITS):
    """Return report and progress of a native program that owns the result pipe."""
    heard = []

    def watch(exchange):
        if hear:
            exchange.hear(heard.append)

    return jail.run(encode_probe(WRITE + source), limits, watch=watch), heard


def test_hostile_frames_are_left_out_and_the_run_goes_on(jail):
    good = render_progress(Progress(2, 0.5, b"s"))
    report, heard = run(jail, f"tell(b'rubbish'); tell({good!r}); print('on')")
    assert (report.status, report.output) == (JailStatus.FINISHED, b"on\n")
    assert heard == [Progress(2, 0.5, b"s")]


@pytest.mark.parametrize(
    "source",
    [
        f"tell(bytes({largest_state(1 << 16) + 300}))",
        "tell(b'', length=1 << 40)",
        "tell(b'', flag=(1 << 63) | (1 << 62))",
        "while True: tell(b'')",
    ],
)
def test_too_much_progress_ends_the_run(jail, source):
    report, _ = run(jail, source)
    assert (report.status, report.limit) == (JailStatus.KILLED, "result_bytes")


def test_progress_that_nobody_asked_for_ends_the_run(jail):
    report, _ = run(jail, "tell(b'x')", hear=False)
    assert report.limit == "result_bytes"


def test_unfinished_frame_is_no_result(jail):
    report, heard = run(jail, "tell(b'x', length=9); os._exit(0)")
    assert (report.code, heard) == ("STO-S021", [])


def test_progress_is_heard_before_the_end(jail):
    seen = threading.Event()
    frame = render_progress(Progress(1))
    source = f"tell({frame!r})\nwhile True: time.sleep(0.01)"
    with InBackground(jail, source, seen):
        assert seen.wait(60)


class InBackground:
    """Runs a program in a thread until the block ends."""

    def __init__(self, jail, source, seen):
        self.exchanges = []

        def watch(exchange):
            self.exchanges.append(exchange)
            exchange.hear(lambda _: seen.set())

        limits = replace(LIMITS, wall_s=60)
        request = encode_probe(WRITE + "import time\n" + source)
        self.thread = threading.Thread(
            target=jail.run, args=(request, limits), kwargs={"watch": watch}
        )

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *exc_info):
        for exchange in self.exchanges:
            exchange.cancel()
        self.thread.join()

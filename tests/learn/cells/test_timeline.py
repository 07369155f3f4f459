"""Timelines: the trace's fields, the picture's pixels, the share of time that is computing."""

import io
import json

import pytest
from PIL import Image

from stoilo.core.errors import UsageError
from stoilo.learn.cells.timeline import (
    Span,
    draw_timeline,
    measure_utilisation,
    render_trace,
)


def make_schedule(stages, batches, replicas=1):
    """1F1B at its steady pace: forward 1 s, backward 2 s, behind a warm-up that waits."""
    spans = []
    for stage in range(stages):
        spans.append(Span(stage, "wait", 0, 100, 100 + stage))
        for batch in range(batches):
            begin = 100 + stage + 3 * batch
            own = batch % replicas if stage == 0 else 0
            spans.append(Span(stage, "F", batch, begin, begin + 1, own))
            spans.append(Span(stage, "B", batch, begin + 1, begin + 3, own))
    return spans


SPANS = make_schedule(3, 4)


def test_utilisation_is_the_share_of_forward_and_backward():
    assert measure_utilisation(SPANS) == pytest.approx(12 / 14)
    busy = [Span(0, "F", 0, 0, 1), Span(0, "sync", 0, 1, 2), Span(1, "B", 0, 0, 2)]
    assert measure_utilisation(busy) == 0.75


def test_trace_has_the_fields_of_the_format():
    trace = json.loads(render_trace(SPANS))
    events = [one for one in trace["traceEvents"] if one["ph"] == "X"]
    assert len(events) == len(SPANS)
    for one in events:
        assert {"name", "cat", "ph", "ts", "dur", "pid", "tid"} <= one.keys()
        assert all(isinstance(one[key], int) for key in ("pid", "tid"))
        assert one["ts"] >= 0 <= one["dur"]
    last = max(events, key=lambda one: one["ts"] + one["dur"])
    assert (last["ts"], last["dur"], last["name"]) == (12e6, 2e6, "B 3")
    assert (last["pid"], last["args"]) == (2, {"batch": 3})


def test_trace_names_stages_and_replicas_once():
    trace = json.loads(render_trace(make_schedule(2, 4, replicas=2)))
    named = [
        (one["name"], one["pid"], one["tid"], one["args"]["name"])
        for one in trace["traceEvents"]
        if one["ph"] == "M"
    ]
    assert named == [
        ("process_name", 0, 0, "stage 0"), ("process_name", 1, 0, "stage 1"),
        ("thread_name", 0, 0, "replica 0"), ("thread_name", 0, 1, "replica 1"),
        ("thread_name", 1, 0, "replica 0"),
    ]  # fmt: skip


def read_row(spans, row, width=1000):
    """Return the colours of a row's pixels, near its lower edge where no number stands."""
    image = Image.open(io.BytesIO(draw_timeline(spans, width)))
    y = 2 * (30 + 26 * row + 20)
    return [image.getpixel((x, y)) for x in range(image.width)]


FORWARD, BACKWARD, WAIT = (74, 144, 217), (232, 150, 60), (221, 221, 221)


def test_picture_shows_in_each_row_what_took_how_long():
    for row in range(3):
        colours = read_row(SPANS, row)
        second = 2 * 900 / 14
        for colour, seconds, parts in [
            (FORWARD, 4, 4),
            (BACKWARD, 8, 4),
            (WAIT, row, 1),
        ]:
            assert colours.count(colour) == pytest.approx(
                seconds * second, abs=3 * parts
            )


def test_picture_has_a_row_for_each_replica_and_waits_lie_below():
    over = [Span(0, "F", 0, 0, 1), Span(0, "wait", 0, 0, 2), Span(0, "B", 1, 1, 2, 1)]
    image = Image.open(io.BytesIO(draw_timeline(over)))
    assert image.format == "PNG"
    assert image.size == (2000, 2 * (56 + 2 * 26))
    assert read_row(over, 0).count(FORWARD) > 800
    assert read_row(over, 1).count(BACKWARD) > 800
    assert read_row(over, 1).count(FORWARD) == 0


@pytest.mark.parametrize(
    "spans", [[], [Span(0, "F", 0, 1, 1)], [Span(0, "F", 0, 2, 1), Span(0, "B", 0, 2, 9)],
              [Span(0, "F", 0, 0, float("nan"))]]
)  # fmt: skip
def test_what_is_no_time_is_refused(spans):
    for call in (render_trace, draw_timeline, measure_utilisation):
        with pytest.raises(UsageError) as caught:
            call(spans)
        assert caught.value.code == "STO-T040"

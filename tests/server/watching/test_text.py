"""The text format, read back by a reader written from its description."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import InternalError
from stoilo.server.watching.text import (
    MOST_SERIES,
    Distribution,
    Kind,
    Metric,
    Sample,
    render_metrics,
)

GAUGE = Metric("a_gauge", Kind.GAUGE, "A help\nwith two lines.", ("x",))
TIMES = Metric("a_time", Kind.HISTOGRAM, "Times.")
LINE = re.compile(
    r'(?:# (?:HELP|TYPE) \w+ [^\n]*|\w+(?:\{\w+="(?:[^"\\\n]|\\[\\"n])*"\})? \S+)'
)


def series(text: bytes) -> dict[str, str]:
    lines = [one for one in text.decode().split("\n") if one and one[0] != "#"]
    return dict(one.rsplit(" ", 1) for one in lines)


def test_histogram_is_cumulative_with_sum_and_count() -> None:
    value = Distribution((0.1, 1.0), (2, 3, 1), 4.5)
    assert series(render_metrics([TIMES], [Sample("a_time", value)])) == {
        'a_time_bucket{le="0.1"}': "2",
        'a_time_bucket{le="1"}': "5",
        'a_time_bucket{le="+Inf"}': "6",
        "a_time_sum": "4.5",
        "a_time_count": "6",
    }


@given(st.text(max_size=80), st.floats())
def test_any_label_and_number_stays_on_its_line(label: str, value: float) -> None:
    text = render_metrics([GAUGE], [Sample("a_gauge", value, (label,))]).decode()
    lines = text.removesuffix("\n").split("\n")
    assert len(lines) == 3
    assert all(LINE.fullmatch(line) for line in lines)


def test_more_series_than_allowed_are_left_out_and_said() -> None:
    many = [Sample("a_gauge", 1, (str(n),)) for n in range(MOST_SERIES + 7)]
    text = render_metrics([GAUGE], many)
    assert len(series(text)) == MOST_SERIES
    assert b"7 series are left out" in text


@pytest.mark.parametrize("sample", [Sample("b", 1), Sample("a_gauge", 1)])
def test_sample_outside_the_catalogue_is_refused(sample: Sample) -> None:
    with pytest.raises(InternalError, match="STO-B061"):
        render_metrics([GAUGE], [sample])

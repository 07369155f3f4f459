"""What a label's page says of tasks and curves: sums, stragglers, drawings."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.types import TaskState
from stoilo.server.api.progress import Point
from stoilo.server.db import rows
from stoilo.web.console.progress import HIGH, MOST_LATE, WIDE, draw, sum_up
from tests.support.console import run

if TYPE_CHECKING:
    from pathlib import Path

    from stoilo.server.db.records import TaskRow
    from tests.support.console import ConsoleBench

import msgspec

from tests.support.serverbench import make_bench

SUCCEEDED, RUNNING = TaskState.SUCCEEDED, TaskState.RUNNING


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> TaskRow:
    place: Path = tmp_path_factory.mktemp("row")
    bench = make_bench(place)
    task = run(bench.submit("k1"))
    with bench.store.read() as connection:
        found = rows.find_task(connection, task)
    assert found is not None
    return found


def row(pattern: TaskRow, state: TaskState, made: int, ended: int | None = None):
    return msgspec.structs.replace(
        pattern, state=state, created_at=made, finished_at=ended
    )


def test_median_slowest_and_counts_are_of_the_tasks(pattern: TaskRow) -> None:
    took = [10, 20, 90]
    tasks = [row(pattern, SUCCEEDED, 100, 100 + one) for one in took]
    tasks += [row(pattern, TaskState.USER_ERROR, 50, 51), row(pattern, RUNNING, 40)]
    found = sum_up(tasks, now=41)
    assert (found.median_s, found.slowest_s, found.began_at) == (20.0, 90, 40)
    assert (found.ended, found.states[RUNNING]) == (4, 1)


def test_open_for_twice_the_median_is_late_and_the_oldest_first(
    pattern: TaskRow,
) -> None:
    ended = [row(pattern, SUCCEEDED, 0, 10)]
    still = [row(pattern, RUNNING, made) for made in (100, 79, 50)]
    found = sum_up([*still, *ended], now=100)
    assert list(found.late_s) == [50, 21]
    assert not sum_up(still, now=10**6).late  # nothing to compare with


def test_few_late_ones_are_named(pattern: TaskRow) -> None:
    tasks = [row(pattern, RUNNING, n) for n in range(50)]
    found = sum_up([*tasks, row(pattern, SUCCEEDED, 0, 1)], now=10**6)
    assert len(found.late) == MOST_LATE


def test_no_task_is_a_summary_too() -> None:
    found = sum_up([], now=5)
    assert (found.ended, found.median_s, found.began_at) == (0, 0.0, 0)


@given(
    st.dictionaries(
        st.integers(0, 2**63 - 1), st.tuples(st.floats(), st.floats()), max_size=300
    )
)
def test_curves_of_any_numbers_stay_in_the_drawing(
    said: dict[int, tuple[float, float]],
) -> None:
    points = [Point(one, *said[one], 1) for one in sorted(said)]
    chart = draw(points)
    for _, line in chart.lines if chart else ():
        for pair in line.split():
            across, down = map(float, pair.split(","))
            assert -0.1 <= across <= WIDE + 0.1
            assert -0.1 <= down <= HIGH + 0.1


def test_curve_goes_from_the_first_version_s_loss_to_the_last_s() -> None:
    points = [Point(n, 8.0 / n, math.nan, 1) for n in (1, 2, 8)]
    chart = draw(points)
    assert chart is not None
    ((name, line),) = chart.lines
    assert (name, chart.low, chart.high) == ("loss", 1.0, 8.0)
    assert line.split()[0] == "0.0,0.0"
    assert line.split()[-1] == f"{WIDE}.0,{HIGH}.0"


def test_label_is_text_and_nobody_else_s(served: ConsoleBench) -> None:
    label = "<b>a/b & c?</b>"
    run(served.bench.issued("k1", label=f"{label} 1"))
    path = "/console/label/%3Cb%3Ea/b%20%26%20c%3F%3C/b%3E"
    own = served.visitor().ask(path)
    assert "0 of 1 task" in own.words
    assert "<b>" not in own.text
    assert f'hx-get="{path}"' in own.text
    other = served.visitor("eve").ask(path)
    assert "None of your newest 1,000 tasks has this label" in other.words


@pytest.mark.parametrize("name", ["x" * 129, "%00", "%e2%80%ae"])
def test_senseless_label_is_told_so(served: ConsoleBench, name: str) -> None:
    answer = served.visitor().ask(f"/console/label/{name}")
    assert (answer.status, "STO-R010" in answer.words) == (400, True)

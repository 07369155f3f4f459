"""What a training's display shows, in a terminal and in a log."""

import io
import math

import pytest
from hypothesis import given
from hypothesis import strategies as some
from rich.console import Console

from stoilo.learn import Display, SimulatedBackend, SimulatedHost, fit
from stoilo.learn.trainers.progress import count_bytes, sparkline
from tests.support.points import make_model, make_samples


def make_display(*, terminal):
    console = Console(
        file=io.StringIO(), force_terminal=terminal, width=100, color_system=None
    )
    return Display(console)


async def train(display):
    place = SimulatedBackend([SimulatedHost(loss=0.1) for _ in range(3)])
    data = make_samples()
    await fit(
        "vcasgd", make_model(), data, place, epochs=3, progress=display, held_out=data
    )
    return display.console.file.getvalue()


async def test_log_has_the_estimate_and_a_line_an_epoch():
    lines = (await train(make_display(terminal=False))).splitlines()
    assert lines[0].startswith("step ≈")
    assert [line[:8] for line in lines if line.startswith("epoch ")][:3] == [
        "epoch 0:",
        "epoch 1:",
        "epoch 2:",
    ]
    assert "\x1b" not in "".join(lines)


async def test_terminal_shows_table_and_curve():
    display = make_display(terminal=True)
    text = await train(display)
    for name in display.cells():
        assert name in text
    assert "█" in text
    assert len(display.losses) == 24
    assert display.cells()["epoch"] == "2"


def test_display_before_the_first_answer_is_empty_and_sound():
    display = make_display(terminal=False)
    assert display.cells()["loss"] == "-"
    with display:
        pass
    assert "epoch" in display.console.file.getvalue()


def test_curve_of_falling_values_falls():
    assert sparkline([3.0, 2.0, 1.0], width=9) == "█▅▁"


def test_curve_of_more_values_than_columns_shows_means():
    assert sparkline([4.0, 2.0, 0.0, 2.0], width=2) == "█▁"


@pytest.mark.parametrize("values", [[], [math.nan], [math.inf, -math.inf]])
def test_curve_of_nothing_is_nothing(values):
    assert not sparkline(values).strip()


@given(some.lists(some.floats(), max_size=200), some.integers(1, 70))
def test_curve_always_fits_its_frame(values, width):
    assert len(sparkline(values, width)) == min(width, len(values))


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2e13, "20.0 TB")]
)
def test_bytes_are_written_for_people(size, text):
    assert count_bytes(size) == text

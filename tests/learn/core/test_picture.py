"""Pictures: the same shapes as SVG and as PNG."""

import builtins
import io
import math
from xml.etree import ElementTree as ET

import pytest
from PIL import Image

from stoilo.core.errors import UsageError
from stoilo.learn.core.picture import (
    SIZE,
    Box,
    Line,
    Text,
    paint_png,
    plot,
    render_svg,
)

BLUE = (0, 102, 204)


def open_png(data):
    return Image.open(io.BytesIO(data)).convert("RGB")


def find(image, colour):
    return {
        (x, y)
        for x in range(image.width)
        for y in range(image.height)
        if image.getpixel((x, y)) == colour
    }


def test_png_has_a_curve_where_the_svg_has_it():
    shapes = plot({"loss": [(0, 1.0), (5, 0.5), (10, 0.0)]}, "steps")
    image = open_png(paint_png(shapes, *SIZE))
    assert image.size == (1000, 660)
    for x, y in [(120, 40), (560, 320), (990, 595)]:
        assert any(image.getpixel((x, y + dy)) == BLUE for dy in range(-4, 5))
    assert image.getpixel((700, 200)) == (255, 255, 255)


def test_box_covers_its_pixels_and_no_more():
    image = open_png(paint_png([Box(2, 1, 3, 2, "#06c")], 10, 5, scale=2))
    assert find(image, BLUE) == {(x, y) for x in range(4, 10) for y in range(2, 6)}
    assert find(open_png(paint_png([Box(2, 1, 0, 0, "#06c")], 9, 5)), BLUE) == {(4, 2)}


def test_words_stand_where_they_begin_or_end():
    begins = Text(50, 15, "loss", "#06c")
    ends = Text(50, 15, "loss", "#06c", ends=True)
    for shape, columns in [(begins, range(98, 160)), (ends, range(50, 102))]:
        places = find(open_png(paint_png([shape], 100, 20)), BLUE)
        assert places
        assert all(x in columns and y <= 32 for x, y in places)


def test_svg_escapes_words():
    svg = render_svg([Text(0, 0, "<a>&"), Line([(0, 0), (1, 2)], "#06c")], 5, 5)
    assert "&lt;a&gt;&amp;</text>" in svg
    assert ET.fromstring(svg).get("viewBox") == "0 0 5 5"  # noqa: S314 - we wrote it


@pytest.mark.parametrize(
    "points", [[], [(1, math.nan)], [(0, 0.0)], [(1, math.inf), (2, 1.0)]]
)
def test_png_of_what_is_not_finite_is_a_png(points):
    assert open_png(paint_png(plot({"loss": points}), *SIZE)).size == (1000, 660)


def test_without_pillow_the_extra_is_named(monkeypatch):
    real = builtins.__import__

    def refuse(name, *more):
        if name.startswith("PIL"):
            raise ModuleNotFoundError(name=name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(UsageError, match="learn extra") as caught:
        paint_png([], 1, 1)
    assert caught.value.code == "STO-U002"

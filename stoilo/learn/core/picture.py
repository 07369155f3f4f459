"""Pictures of runs: shapes in the plane, as SVG text or as a PNG.

Shapes are placed in points, the first number from the left, the second from the top. SVG
needs nothing; PNG is painted by pillow, which comes with the extra ``learn``.
"""

from __future__ import annotations

import html
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TypeAlias

from stoilo.core.errors import UsageError

Point: TypeAlias = "tuple[float, float]"
Curves: TypeAlias = "Mapping[str, Sequence[Point]]"


@dataclass(frozen=True)
class Line:
    """Straight from point to point."""

    points: Sequence[Point]
    colour: str
    width: float = 2


@dataclass(frozen=True)
class Box:
    """A filled rectangle from its upper left corner."""

    x: float
    y: float
    width: float
    height: float
    colour: str = "#888"


@dataclass(frozen=True)
class Text:
    """Words on a base line that begins at a point, or ends there."""

    x: float
    y: float
    words: str
    colour: str = "#000"
    ends: bool = False


Shape: TypeAlias = "Line | Box | Text"


def render_svg(shapes: Iterable[Shape], width: float, height: float) -> str:
    """Return an SVG of the shapes, the later ones on top."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
    return "\n".join([f'{head} font-size="12">', *map(_render, shapes), "</svg>\n"])


def _render(shape: Shape) -> str:
    match shape:
        case Line(points, colour, width):
            corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            stroke = f'stroke="{colour}" stroke-width="{width}"'
            return f'<polyline points="{corners}" fill="none" {stroke}/>'
        case Box(x, y, width, height, colour):
            size = f'width="{width:.1f}" height="{height:.1f}"'
            return f'<rect x="{x:.1f}" y="{y:.1f}" {size} fill="{colour}"/>'
        case Text(x, y, words, colour, ends):
            place = f'x="{x:.1f}" y="{y:.1f}" fill="{colour}"'
            anchor = ' text-anchor="end"' if ends else ""
            return f"<text {place}{anchor}>{html.escape(words)}</text>"


def paint_png(
    shapes: Iterable[Shape], width: float, height: float, scale: int = 2
) -> bytes:
    """Return a PNG of the shapes, `scale` pixels a point.

    Raises:
        UsageError: ``STO-U002``: pillow is missing.
    """
    pillow = find_pillow()
    size = round(width * scale), round(height * scale)
    image = pillow.Image.new("RGB", size, "#fff")
    canvas = pillow.ImageDraw.Draw(image)
    font = pillow.ImageFont.load_default(12 * scale)
    for shape in shapes:
        match shape:
            case Line(points, colour, thick):
                scaled = [(x * scale, y * scale) for x, y in points]
                canvas.line(scaled, colour, round(thick * scale), joint="curve")
            case Box(x, y, wide, high, colour):
                # Pillow's last corner is inside; what has no width is still seen.
                right, low = max(x, x + wide - 1 / scale), max(y, y + high - 1 / scale)
                corners = (x * scale, y * scale, right * scale, low * scale)
                canvas.rectangle(corners, colour)
            case Text(x, y, words, colour, ends):
                anchor = "rs" if ends else "ls"
                canvas.text((x * scale, y * scale), words, colour, font, anchor)
    written = io.BytesIO()
    image.save(written, "PNG")
    return written.getvalue()


def find_pillow() -> ModuleType:
    """Return pillow with the parts that pictures need, or raise ``STO-U002``."""
    try:
        # Loaded when there is something to paint: nobody else waits for it.
        import PIL.Image  # noqa: PLC0415
        import PIL.ImageDraw  # noqa: PLC0415
        import PIL.ImageFont  # noqa: PLC0415
    except ImportError as error:
        raise UsageError(
            "STO-U002",
            f"a PNG needs pillow of the learn extra ({error.name} is missing)",
            hint="pip install 'stoilo[learn]'",
        ) from None
    return PIL


COLOURS = ("#06c", "#c60", "#283", "#a2a", "#555")
SIZE = (500, 330)
_WIDTH, _HEIGHT, _LEFT, _TOP = 500, 300, 60, 20


def draw(
    curves: Curves, across: str = "", marks: Mapping[str, Point] | None = None
) -> str:
    """Return an SVG of curves, name → points; of points that are not finite, none.

    Args:
        curves: in the order of their colours.
        across: what the first number of a point counts.
        marks: single points with their names, shown as crosses.
    """
    return render_svg(plot(curves, across, marks), *SIZE)


def plot(
    curves: Curves, across: str = "", marks: Mapping[str, Point] | None = None
) -> list[Shape]:
    """Return the shapes of what `draw` draws; they fill `SIZE`."""
    finite = {
        name: [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
        for name, points in curves.items()
    }
    marks = marks or {}
    known = [p for points in (*finite.values(), marks.values()) for p in points]
    place = _Plane(known or [(0.0, 0.0)])
    shapes: list[Shape] = [
        Box(_LEFT, _TOP, 1, _HEIGHT - _TOP),
        Box(_LEFT, _HEIGHT, _WIDTH - _LEFT, 1),
        *place.label(across),
    ]
    for number, (name, points) in enumerate(finite.items()):
        colour = COLOURS[number % len(COLOURS)]
        shapes.append(Line([place(*point) for point in points], colour))
        shapes.append(Text(_LEFT + 10 + 110 * number, 14, name, colour))
    for name, point in marks.items():
        x, y = place(*point)
        shapes += [
            Line([(x - 5, y), (x + 5, y)], "#c00", 1),
            Line([(x, y - 5), (x, y + 5)], "#c00", 1),
            Text(x - 8, y - 8, name, "#c00", ends=True),
        ]
    return shapes


class _Plane:
    """Where a point lies in the picture."""

    def __init__(self, points: Iterable[Point]) -> None:
        xs, ys = zip(*points, strict=True)
        self.left, self.right = min(0.0, *xs), max(xs)
        self.low, self.high = min(0.0, *ys), max(ys)

    def __call__(self, x: float, y: float) -> Point:
        across = (x - self.left) / ((self.right - self.left) or 1.0)
        up = (y - self.low) / ((self.high - self.low) or 1.0)
        return _LEFT + (_WIDTH - _LEFT) * across, _HEIGHT - (_HEIGHT - _TOP) * up

    def label(self, across: str) -> list[Text]:
        """Return the numbers at the axes."""
        quarters = [
            self.low + (self.high - self.low) * quarter / 4 for quarter in range(5)
        ]
        found = [Text(4, self(self.left, y)[1] + 4, f"{y:.4g}") for y in quarters]
        return [*found, Text(_WIDTH, 320, f"{self.right:.4g} {across}", ends=True)]

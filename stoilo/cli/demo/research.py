"""What the demo's researcher wrote: ordinary functions, captured by source."""

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np

INTEGRAL_PARTS = 10
POINTS_PER_PART = 2_000
TOLERANCE = 1e-9


def wave(x: float) -> float:
    """Return the integrand; it travels inside kwargs."""
    return math.sin(x) * x


def integrate(kwargs: dict[str, Any]) -> float:
    """Return the midpoint sum of ``f`` over one part."""
    function: Callable[[float], float] = kwargs["f"]
    start, width, points = kwargs["start"], kwargs["width"], kwargs["points"]
    step = width / points
    total = sum(function(start + (i + 0.5) * step) for i in range(points))
    return float(step * total)


def make_integral_parts() -> list[dict[str, Any]]:
    """Return the ten parts of ∫₀^π x·sin x dx = π."""
    width = math.pi / INTEGRAL_PARTS
    return [
        {"f": wave, "start": part * width, "width": width, "points": POINTS_PER_PART}
        for part in range(INTEGRAL_PARTS)
    ]


def make_system() -> dict[str, Any]:
    """Return a well-conditioned linear system of 60 unknowns."""
    chooser = np.random.default_rng(7)
    matrix = chooser.standard_normal((60, 60)) + 60 * np.eye(60)
    return {"a": matrix, "b": chooser.standard_normal(60)}


def solve(kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - an array, by source
    """Return x with a·x = b."""
    return np.linalg.solve(kwargs["a"], kwargs["b"])


def residual_small(x: Any) -> bool:  # noqa: ANN401 - any volunteer's value
    """Accept only a finite vector of the right length; a cheat may send anything."""
    return isinstance(x, np.ndarray) and x.shape == (60,) and bool(np.isfinite(x).all())


def solutions_close(x: Any, y: Any) -> bool:  # noqa: ANN401 - any two values
    """Return whether two solutions agree within the tolerance."""
    return bool(np.max(np.abs(x - y)) <= TOLERANCE)


def count_hits(kwargs: dict[str, Any]) -> int:
    """Return how many of ``n`` random points fall inside the quarter circle."""
    chooser = random.Random(kwargs["seed"])  # noqa: S311 - a simulation
    return sum(
        chooser.random() ** 2 + chooser.random() ** 2 <= 1 for _ in range(kwargs["n"])
    )


def failing(kwargs: dict[str, Any]) -> float:
    """Raise, as research code does."""
    return 1.0 / float(kwargs["zero"])


def never_agree(_left: Any, _right: Any) -> bool:  # noqa: ANN401 - refuses any two
    """Never accept two results as the same."""
    return False

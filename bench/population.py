"""What a population of 10,000 hosts gets accepted, beside what arithmetic expects.

Not a race: the row's ratio is measured to expected, and a share or a cost counts as met
when the closed form lies within four standard deviations of the run, or within a tenth of
it (hosts fail, come and go, which no closed form knows).
"""

from __future__ import annotations

import math

from bench.rows import Row, seconds_once
from bench.simulation.comparison import Figure, PolicyRun, compare
from bench.simulation.scenario import Scenario

NEAR = 0.1
SIGMAS = 4


def measure(scenario: Scenario | None = None) -> list[Row]:
    """Return a row for each quantity that has a closed form, and the run's speed."""
    scenario = scenario or Scenario()
    seconds, runs = seconds_once(lambda: compare(scenario))
    tasks = sum(run.tasks for run in runs)
    name = f"population of {scenario.hosts:,}: simulated tasks"
    speed = Row(name, tasks / seconds, "1/s")
    rows = [_row(run, figure) for run in runs for figure in run.figures]
    return [speed, *(row for row in rows if row is not None)]


def _row(run: PolicyRun, figure: Figure) -> Row | None:
    """Return one quantity, None where arithmetic says nothing."""
    expected, seen = figure.expected, figure.measured
    if not expected or not math.isfinite(seen.value):
        return None
    ratio = seen.value / expected
    lower_bound = figure.formula in {"1/(r·c)", "1 + r, r = 1/10"}
    met = seen.holds(expected, SIGMAS) or abs(ratio - 1) <= NEAR
    return Row(
        name=f"population, {run.policy}: {figure.name}",
        ours=seen.value,
        unit="of 1" if "wrong" in figure.name else "results",
        peer_name=figure.formula,
        peer=expected,
        ratio=ratio,
        ratio_of="of expected",
        target="" if lower_bound else "as expected",
        met=None if lower_bound else met,
    )

"""How often a population deceives a project, and at what cost: `python -m bench.simulation`."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence

import click

from bench.simulation.comparison import Figure, PolicyRun, compare
from bench.simulation.scenario import Scenario
from stoilo.cli.output import JSON, render_table

_SHARE = click.FloatRange(0, 1)


@click.command()
@click.option("--hosts", type=int, default=10_000, show_default=True, help="Computers.")
@click.option(
    "--cheats", type=_SHARE, default=0.1, show_default=True, help="Share that cheats."
)
@click.option(
    "--corrupt",
    type=_SHARE,
    default=1.0,
    show_default=True,
    help="Share of tasks that a cheat falsifies.",
)
@click.option(
    "--in-step", is_flag=True, help="Cheats call in pairs, one right after the other."
)
@click.option(
    "--tasks",
    type=int,
    default=None,
    help="Tasks for each fixed quorum, four times that for the others "
    "[default: three a computer].",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Of every draw.")
@JSON
def simulate(
    hosts: int,
    *,
    cheats: float,
    corrupt: float,
    in_step: bool,
    tasks: int | None,
    seed: int,
    as_json: bool,
) -> None:
    """Let simulated computers, some of them colluding cheats, work for a project.

    The same rules decide as in `stoilo up`; hosts come and go, are slow, fail. Prints
    for four ways of trusting results what was wrongly accepted and what it cost, beside
    what arithmetic expects. The same seed gives the same figures.

    Example: python -m bench.simulation --hosts 10000 --cheats 0.1 --json
    """
    scenario = Scenario(
        hosts=hosts,
        cheats=cheats,
        corrupt=corrupt,
        in_step=in_step,
        tasks=3 * hosts if tasks is None else tasks,
        seed=seed,
    )
    runs = compare(scenario, _tell)
    if as_json:
        click.echo(json.dumps(_record(dataclasses.asdict(scenario), runs)))
        return
    head = ("policy", "tasks", "f", "what", "measured", "95 %", "expected", "as")
    rows = [
        (one.policy, str(one.tasks), _percent(one.cheats_share), *_row(figure))
        for one in runs
        for figure in one.figures
    ]
    click.echo(render_table([head, *rows]))


def _tell(policy: str, ended: int, tasks: int) -> None:
    """Say on stderr how far a run is."""
    click.echo(f"{policy}: {ended} of {tasks} tasks", err=True)


def _row(figure: Figure) -> tuple[str, ...]:
    """Return one quantity as text."""
    seen = figure.measured
    show = _percent if "wrong" in figure.name else _number
    expected = "" if figure.expected is None else show(figure.expected)
    interval = f"{show(seen.low)} to {show(seen.high)}"
    return (figure.name, show(seen.value), interval, expected, figure.formula)


def _percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def _number(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "never"


def _record(
    scenario: dict[str, object], runs: Sequence[PolicyRun]
) -> dict[str, object]:
    """Return everything as JSON; what never happens is null there."""
    return {
        "scenario": scenario,
        "policies": [_finite(dataclasses.asdict(one)) for one in runs],
    }


def _finite(value: object) -> object:
    """Return a value with null in place of infinity."""
    match value:
        case dict():
            return {key: _finite(part) for key, part in value.items()}
        case list() | tuple():
            return [_finite(part) for part in value]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value


if __name__ == "__main__":
    simulate(prog_name="python -m bench.simulation")

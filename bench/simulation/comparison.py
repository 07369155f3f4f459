"""The table: each policy's run beside what arithmetic expects of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from bench.simulation.figures import (
    Estimate,
    detected_after,
    first_to,
    inverse,
    mean,
    share,
    third_copies,
)
from bench.simulation.ruled import RulesProject
from bench.simulation.run import draws, lots, silent, simulate
from bench.simulation.scenario import POLICIES
from stoilo.server.engines.embedded.accounts.host_trust import TRUSTED_AFTER

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.simulation.run import Tally
    from bench.simulation.scenario import Policy, Scenario

__all__ = ["Figure", "PolicyRun", "compare", "run_policy", "staffed"]

OWN_CAPACITY: Final = 0.8
"""Own machines for each unit of (hosts x spot-check rate): they are always on."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured quantity beside its closed form.

    Attributes:
        name: what it is.
        measured: with its 95 % interval.
        expected: the closed form's value, None where there is none.
        formula: the closed form.
    """

    name: str
    measured: Estimate
    expected: float | None = None
    formula: str = ""


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """What one policy came to.

    Attributes:
        policy: its name.
        tasks: workunits that ended.
        unfinished: of these, without an answer.
        days: of the virtual clock.
        cheats_share: of the copies that went to volunteers.
        banned: hosts; `banned_honest` of them were honest.
        banned_honest: see there.
        figures: the quantities.
    """

    policy: str
    tasks: int
    unfinished: int
    days: float
    cheats_share: float
    banned: int
    banned_honest: int
    figures: tuple[Figure, ...]


def compare(
    scenario: Scenario,
    progress: Callable[[str, int, int], None] = silent,
) -> tuple[PolicyRun, ...]:
    """Run every policy on the same population.

    Args:
        scenario: population and work.
        progress: told policy, ended and all workunits, now and then.

    Raises:
        ValueError: it cannot be simulated.
    """
    scenario.check()
    return tuple(run_policy(scenario, policy, progress) for policy in POLICIES)


def run_policy(
    scenario: Scenario,
    policy: Policy,
    progress: Callable[[str, int, int], None] = silent,
) -> PolicyRun:
    """Run one policy with the rules alone and set its figures beside the closed forms."""
    scenario = staffed(scenario, policy)
    project = RulesProject(
        policy, scenario.life_of_admission_s, draws(scenario), lots=lots(scenario)
    )
    tally = simulate(
        scenario, project, lambda ended: progress(policy.name, ended, scenario.tasks)
    )
    return PolicyRun(
        policy=policy.name,
        tasks=tally.ended,
        unfinished=tally.unfinished,
        days=tally.seconds / 86_400,
        cheats_share=tally.cheats_share,
        banned=tally.banned,
        banned_honest=tally.banned_honest,
        figures=_figures(scenario, policy, tally, project),
    )


def staffed(scenario: Scenario, policy: Policy) -> Scenario:
    """Return the scenario with machines of the project's own, where the policy needs them.

    Policies in which a cheat is found after some time run for longer.
    """
    if policy.spot_check_rate and not scenario.own:
        own = math.ceil(scenario.hosts * policy.spot_check_rate * OWN_CAPACITY)
        scenario = replace(scenario, own=max(2, own))
    return replace(scenario, tasks=scenario.tasks * policy.patience)


def _figures(
    scenario: Scenario, policy: Policy, tally: Tally, project: RulesProject
) -> tuple[Figure, ...]:
    """Return the quantities of one run; `f` is the share of copies that cheats had."""
    wrong = share(tally.wrong, tally.ended)
    copies = mean(tally.answers_of.values())
    found = _detection(tally, project)
    f, c = tally.cheats_share, scenario.corrupt
    r = policy.spot_check_rate
    if policy.adaptive:
        r = 1 / TRUSTED_AFTER
        compared = 2 * r / (1 + r)  # of all copies: those checked, and their twins
        twin = detected_after(compared, c, (1 - f) ** 2)
        return (
            Figure("wrong accepts", wrong),
            Figure("answers per task", copies, 1 + r, "1 + r, r = 1/10"),
            Figure("caught after", found, detected_after(r, c), "1/(r·c)"),
            Figure("caught after", found, twin, "(1+r)/(2·r·c·(1-f)²)"),
        )
    if r:
        return (
            Figure("wrong accepts", wrong),
            Figure("answers per task", copies, 1 + r, "1 + r"),
            Figure("caught after", found, detected_after(r, c), "1/(r·c)"),
        )
    return _quorum_figures(scenario, policy, tally, wrong, copies)


def _quorum_figures(
    scenario: Scenario,
    policy: Policy,
    tally: Tally,
    wrong: Estimate,
    copies: Estimate,
) -> tuple[Figure, ...]:
    """Return the quantities of a fixed quorum; closed forms are for colluding cheats."""
    f, c = tally.cheats_share, scenario.corrupt
    quorum, target = policy.redundancy.min_quorum, policy.redundancy.target_results
    chance = c * first_to(quorum, f) if scenario.collude else 0.0
    text = "c·f²·(3-2f)" if quorum == target else "c·P(majority of 5)"
    found = Figure("wrong accepts", wrong, chance, text)
    if quorum < target:
        return (found, Figure("answers per task", copies, float(target), "5"))
    pair = share(tally.first_pairs_wrong, tally.first_pairs)
    expected = c * f * f if scenario.collude else 0.0
    added = c * third_copies(f) if scenario.collude else None
    cost = None if added is None else quorum + added
    return (
        Figure("first two wrong", pair, expected, "c·f²"),
        found,
        Figure("answers per task", copies, cost, "2 + 2·c·f·(1-f)"),
    )


def _detection(tally: Tally, project: RulesProject) -> Estimate:
    """Return after how many falsified results a cheat is caught.

    Cheats that were not caught so far count with what they have done (the estimate of a
    geometric law with censoring): leaving them out would flatter the policy.
    """
    tries = caught = 0
    for host, copies in tally.wrong_by.items():
        first = project.caught.get(host)
        if first in copies:
            tries += copies.index(first) + 1
            caught += 1
        else:
            tries += len(copies)
    return inverse(share(caught, tries))

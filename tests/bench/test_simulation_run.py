"""Populations of some hundred hosts agree with arithmetic; without a rule they do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.simulation.comparison import run_policy
from bench.simulation.ruled import HostRules, RulesProject
from bench.simulation.run import draws, lots, simulate
from bench.simulation.scenario import POLICIES, Scenario
from stoilo.server.engines.embedded.workunits.transitioner import may_issue

# Fixed seeds: each number below is the same in every run. Four standard deviations of
# room, so that a change of an unrelated draw rarely needs another seed.
SIGMAS = 4
SMALL = Scenario(hosts=200, cheats=0.2, tasks=400, stragglers=0.0, fails=0.0)
QUORUM_2, OF_FIVE, ADAPTIVE, SPOT_CHECKS = POLICIES


def play(scenario, policy=QUORUM_2, rules=None, by_lot=lots):
    life_s, drawn = scenario.life_of_admission_s, by_lot(scenario)
    project = RulesProject(policy, life_s, draws(scenario), rules, drawn)
    return simulate(scenario, project)


def in_order(_scenario):
    """No lots: what has waited longest goes first."""


def caught(scenario, policy, rules=None):
    project = RulesProject(policy, scenario.life_of_admission_s, draws(scenario), rules)
    simulate(scenario, project)
    return len(project.caught)


def ignores_users(view, caller, now):
    """The rule without its distinct users and hosts."""
    return may_issue(replace(view, results=()), caller, now)


@pytest.mark.parametrize("policy", [QUORUM_2, OF_FIVE], ids=lambda one: one.name)
def test_fixed_quorum_accepts_and_costs_what_arithmetic_says(policy):
    figures = run_policy(SMALL, policy).figures
    # Of five copies some are not needed any more: three have agreed.
    compared = figures if policy is QUORUM_2 else figures[:1]
    assert all(one.measured.holds(one.expected, SIGMAS) for one in compared)


def test_spot_checks_catch_a_cheat_as_soon_as_arithmetic_says():
    run = run_policy(replace(SMALL, tasks=300), SPOT_CHECKS)
    found = run.figures[-1]
    assert found.measured.holds(found.expected, SIGMAS)
    assert run.banned > 0
    assert run.banned_honest == 0


def test_adaptive_replication_catches_a_cheat_as_soon_as_arithmetic_says():
    found = run_policy(replace(SMALL, tasks=300), ADAPTIVE).figures[-1]
    assert found.measured.holds(found.expected, SIGMAS)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda one: one.name)
def test_nothing_wrong_is_accepted_without_cheats(policy):
    run = run_policy(replace(SMALL, cheats=0.0, tasks=100, fails=0.05), policy)
    assert run.figures[0].measured.value == 0
    assert (run.unfinished, run.banned) == (0, 0)


def test_cheats_who_do_not_collude_are_outvoted():
    assert play(replace(SMALL, collude=False, tasks=300)).wrong == 0


def test_without_distinct_users_a_cheat_confirms_itself():
    broken = play(SMALL, rules=HostRules(may_issue=ignores_users))
    assert broken.wrong > 1.5 * play(SMALL).wrong


IN_STEP = replace(SMALL, hosts=100, cheats=0.05, tasks=800, in_step=True)


def test_cheats_who_call_in_step_confirm_each_other_where_copies_go_out_in_order():
    apart = play(replace(IN_STEP, in_step=False), by_lot=in_order)
    assert play(IN_STEP, by_lot=in_order).wrong > 2 * apart.wrong


def test_cheats_who_call_in_step_gain_little_where_the_lot_decides():
    assert play(IN_STEP).wrong < play(IN_STEP, by_lot=in_order).wrong / 2


def test_where_every_host_is_trusted_no_cheat_is_caught():
    few = replace(SMALL, tasks=300)
    trusting = HostRules(is_trusted=lambda _valid, _draw: True)
    assert caught(few, ADAPTIVE, trusting) == 0
    assert caught(few, ADAPTIVE) > 0


def test_same_seed_gives_the_same_run():
    few = replace(SMALL, tasks=60)
    assert play(few) == play(few)
    assert play(few) != play(replace(few, seed=2))


@pytest.mark.parametrize("change", [{"hosts": 2}, {"cheats": 1.5}, {"tasks": 0}])
def test_scenario_without_sense_is_refused(change):
    with pytest.raises(ValueError, match="cannot be simulated"):
        replace(SMALL, **change).check()

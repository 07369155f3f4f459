"""The rules alone and the engine with its database: the same population, the same ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.simulation.comparison import staffed
from bench.simulation.ruled import HostRules, RulesProject
from bench.simulation.run import draws, simulate
from bench.simulation.scenario import POLICIES, Scenario
from bench.simulation.whole import EngineProject

pytestmark = pytest.mark.slow

# Much churn, many stragglers, short deadlines: every rule has something to do.
ROUGH = Scenario(
    hosts=24,
    tasks=20,
    cheats=0.3,
    corrupt=0.8,
    stragglers=0.2,
    fails=0.1,
    life_s=3 * 86_400,
    poll_s=12 * 3600,
    own=3,
)


def in_memory(scenario, policy, rules=None):
    return RulesProject(policy, scenario.life_of_admission_s, draws(scenario), rules)


@pytest.fixture
def engine(tmp_path):
    opened = []

    def open_engine(scenario, policy):
        opened.append(
            EngineProject(
                tmp_path / f"e{len(opened)}",
                policy,
                scenario.life_of_admission_s,
                draws(scenario),
            )
        )
        return opened[-1]

    yield open_engine
    for one in opened:
        one.close()


def ends(scenario, project):
    tally = simulate(scenario, project)
    kept = {host: n for host, n in project.records().items() if n}
    return tally, kept, project.banned()


def same(scenario, policy, engine, rules=None):
    scenario = replace(staffed(scenario, policy), tasks=scenario.tasks)
    one = ends(scenario, in_memory(scenario, policy, rules))
    return one == ends(scenario, engine(scenario, policy))


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_engine_ends_every_workunit_as_the_rules_alone_do(policy, engine):
    assert same(replace(ROUGH, seed=2, tasks=60), policy, engine)


def test_few_hosts_end_alike_on_the_engine_and_in_memory(engine):
    mixed = replace(POLICIES[2], spot_check_rate=0.3)
    assert same(ROUGH, mixed, engine)


def test_comparison_notices_another_rule(engine):
    lax = HostRules(is_trusted=lambda _valid, _draw: True)
    assert not same(ROUGH, POLICIES[2], engine, lax)

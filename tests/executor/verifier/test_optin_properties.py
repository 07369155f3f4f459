"""Nothing that a server says lets more run than the volunteer's own file (I4)."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from stoilo.core.errors import PolicyRefusal
from stoilo.core.types import RunLimits, lowest_limits
from stoilo.executor.verifier.admission import _check_opt_in, _limits_in_force
from stoilo.executor.verifier.installation import (
    LEVEL_ORDER,
    OptIn,
    ServerPreferences,
    load_opt_in,
    lower_by_server,
)
from stoilo.executor.verifier.workunit import HostState
from tests.support.gate import GateBench, small_level

LEVELS = st.sampled_from(sorted(LEVEL_ORDER))
TOPICS = st.frozensets(st.sampled_from(["health", "physics", "art"]))
LIMITS = st.builds(
    RunLimits,
    **{one.name: st.integers(1, 2000) for one in dataclasses.fields(RunLimits)},
)
OWN = st.builds(OptIn, LEVELS, st.booleans(), st.booleans(), TOPICS, st.none() | LIMITS)
ASKED = st.builds(
    ServerPreferences, LEVELS | st.text(max_size=8), st.booleans(), st.booleans()
)


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> GateBench:
    return GateBench(tmp_path_factory.mktemp("gate") / "root")


def runs(gate: GateBench, host: HostState, level: str, reviews: int, **fields) -> bool:
    statement = gate.statement(level=level, **fields)
    try:
        _check_opt_in(statement, small_level(level, LEVEL_ORDER[level]), host, reviews)
    except PolicyRefusal:
        return False
    return True


@given(OWN, ASKED, LEVELS, st.integers(0, 1), st.booleans(), TOPICS)
def test_lowered_host_runs_nothing_that_the_own_file_forbids(
    gate: GateBench, own, asked, level, reviews, public, topics
) -> None:
    task = {"public_source": public, "topics": tuple(sorted(topics))}
    lowered = HostState.under(lower_by_server(own, asked))
    if runs(gate, lowered, level, reviews, **task):
        assert runs(gate, HostState.under(own), level, reviews, **task)
        event("runs")


@given(OWN, ASKED, LIMITS)
def test_limits_in_force_never_rise(gate: GateBench, own, asked, wanted) -> None:
    statement = gate.statement(limits=wanted)
    level = small_level("pure", 0)
    before = _limits_in_force(statement, level, HostState.under(own))
    lowered = HostState.under(lower_by_server(own, asked))
    after = _limits_in_force(statement, level, lowered)
    assert lowest_limits(before, after) == after


@given(OWN, st.lists(ASKED, max_size=5))
def test_repeated_preferences_only_go_down(own: OptIn, every) -> None:
    for asked in every:
        lowered = lower_by_server(own, asked)
        assert LEVEL_ORDER[lowered.max_level] <= LEVEL_ORDER[own.max_level]
        assert lowered.require_review >= own.require_review
        assert lowered.require_public_source >= own.require_public_source
        assert (lowered.topics, lowered.limits) == (own.topics, own.limits)
        own = lowered


def test_own_file_that_allows_more_is_a_host_that_runs_more(gate: GateBench) -> None:
    """The negative control: a raised level would have been seen."""
    assert not runs(gate, HostState.under(OptIn()), "numeric", 0)
    assert runs(gate, HostState.under(OptIn(max_level="numeric")), "numeric", 0)


def test_lowest_of_any_files_is_below_each(tmp_path: Path) -> None:
    one, two = tmp_path / "one.toml", tmp_path / "two.toml"

    @settings(max_examples=60)
    @given(LEVELS, LEVELS, st.booleans(), st.booleans())
    def check(first: str, second: str, mine: bool, theirs: bool) -> None:
        for path, level, asks in ((one, first, mine), (two, second, theirs)):
            path.write_text(
                f'max_level = "{level}"\nrequire_review = {str(asks).lower()}\n'
            )
            path.chmod(0o600)
        both = load_opt_in([one, two])
        order = LEVEL_ORDER[both.max_level]
        assert order == min(LEVEL_ORDER[first], LEVEL_ORDER[second])
        assert both.require_review == (mine or theirs)

    check()

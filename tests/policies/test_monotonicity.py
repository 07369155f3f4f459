"""Levels and policies are ordered: higher admits no less, an added rule admits no more."""

import itertools

import msgspec
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from stoilo.core.digests import content_digest
from stoilo.core.errors import DeniedError
from stoilo.core.levels import load_levels
from stoilo.policies.gate import GateRequest, judge
from stoilo.policies.levels import level_names
from stoilo.policies.policy import (
    Denials,
    LevelRule,
    Policy,
    Review,
    check_access,
    default_policy,
)
from tests.support.sources import LEVEL_MODULES, sources

LEVELS = level_names()
OPEN = msgspec.structs.replace(
    default_policy(),
    levels={name: LevelRule(open_to=("researcher",)) for name in LEVELS},
)
TYPES = sorted({name for level in load_levels() for name in level.travelling_types})


def admits(source: bytes, level: str, policy: Policy = OPEN, types=()) -> bool:
    request = GateRequest(source, level=level, policy=policy, argument_types=types)
    return judge(request).admitted


@given(sources(), st.lists(st.sampled_from([*TYPES, "os.PathLike"]), max_size=1))
def test_higher_level_never_refuses_what_a_lower_one_admits(source, types) -> None:
    said = [admits(source, level, types=tuple(types)) for level in LEVELS]
    event("".join("+" if one else "-" for one in said))
    assert said == sorted(said)


@given(sources())
def test_level_chosen_is_the_lowest_that_admits(source: bytes) -> None:
    chosen = judge(GateRequest(source, policy=OPEN))
    lowest = next((level for level in LEVELS if admits(source, level)), "")
    assert chosen.lowest_level == lowest
    assert chosen.admitted == bool(lowest)


def test_generated_sources_are_told_apart() -> None:
    """The negative control: the strategy makes sources of every kind."""
    kinds: set[tuple[bool, ...]] = set()

    @settings(max_examples=100, database=None, derandomize=True)
    @given(sources())
    def collect(source: bytes) -> None:
        kinds.add(tuple(admits(source, level) for level in LEVELS))

    collect()
    every, none = (True,) * len(LEVELS), (False,) * len(LEVELS)
    assert {every, none} < kinds


@pytest.mark.parametrize(("lower", "higher"), list(itertools.pairwise(load_levels())))
def test_each_level_holds_all_of_the_one_below(lower, higher) -> None:
    """What the gate finds by source, seen in the data."""
    assert set(lower.builtins) <= set(higher.builtins)
    assert set(lower.travelling_types) <= set(higher.travelling_types)
    for name, rule in lower.modules.items():
        assert set(rule.names) <= set(higher.modules[name].names)
    for name, amount in lower.limits.max.items():
        assert amount <= higher.limits.max[name]


rules = st.sampled_from(LEVELS)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Return a policy between open and shut."""
    levels = {
        name: LevelRule(
            tuple(draw(st.sets(st.sampled_from(["*", "researcher", "user:ada"])))),
            draw(st.sampled_from(list(Review))),
        )
        for name in draw(st.sets(rules))
    }
    denied = tuple(sorted(draw(st.sets(st.sampled_from(LEVEL_MODULES), max_size=2))))
    return msgspec.structs.replace(OPEN, levels=levels, deny=Denials(modules=denied))


@st.composite
def narrowed(draw: st.DrawFn, policy: Policy, source: bytes) -> Policy:
    """Return `policy` with one rule more."""
    replace = msgspec.structs.replace
    kind = draw(
        st.sampled_from(["module", "digest", "size", "nodes", "close", "who", "review"])
    )
    event(kind)
    if kind == "module":
        modules = (*policy.deny.modules, draw(st.sampled_from(LEVEL_MODULES)))
        return replace(policy, deny=replace(policy.deny, modules=modules))
    if kind == "digest":
        return replace(
            policy, deny=replace(policy.deny, digests=(content_digest(source),))
        )
    if kind in {"size", "nodes"}:
        name = {"size": "source_bytes", "nodes": "ast_nodes"}[kind]
        most = getattr(policy.limits, name)
        limits = replace(policy.limits, **{name: draw(st.integers(0, min(most, 500)))})
        return replace(policy, limits=limits)
    assume(policy.levels)
    name = draw(st.sampled_from(sorted(policy.levels)))
    rule = policy.levels[name]
    others = {one: kept for one, kept in policy.levels.items() if one != name}
    if kind == "close":
        return replace(policy, levels=others)
    if kind == "who":
        return replace(
            policy, levels=others | {name: replace(rule, open_to=rule.open_to[1:])}
        )
    return replace(policy, levels=others | {name: replace(rule, review=Review.MANUAL)})


def may_use(policy: Policy, level: str, user: str) -> bool:
    try:
        check_access(policy, level, user, ("researcher",))
    except DeniedError:
        return False
    return True


@given(st.data(), sources(), policies(), st.sampled_from(["", *LEVELS]))
def test_added_rule_never_admits_more(data, source, policy, level) -> None:
    stricter = data.draw(narrowed(policy, source))
    after = judge(GateRequest(source, level=level, policy=stricter))
    if not after.admitted:
        return
    before = judge(GateRequest(source, level=level, policy=policy))
    assert before.admitted
    order = LEVELS.index
    assert order(before.level) <= order(after.level)


@given(st.data(), policies(), rules, st.sampled_from(["ada", "bob"]))
def test_added_rule_never_lets_more_people_in(data, policy, level, user) -> None:
    stricter = data.draw(narrowed(policy, b""))
    assert may_use(stricter, level, user) <= may_use(policy, level, user)
    assert stricter.needs_review(level) >= policy.needs_review(level) or not may_use(
        stricter, level, user
    )


def test_rule_that_is_taken_away_admits_more() -> None:
    """The negative control: the properties above can fail."""
    source = b"import random\ndef task(d):\n    return random.random()\n"
    strict = msgspec.structs.replace(OPEN, deny=Denials(modules=("random",)))
    assert (admits(source, "pure", strict), admits(source, "pure")) == (False, True)

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.levels import load_levels
from stoilo.policies.explanation import (
    Effect,
    diff_levels,
    diff_policies,
    render_changes,
)
from stoilo.policies.levels import load_level
from stoilo.policies.policy import Policy, default_policy, parse_policy

HEAD = 'format = 1\nname = "p"\n'


def policy(text: str) -> Policy:
    return parse_policy((HEAD + text).encode())


@pytest.mark.parametrize("level", load_levels(), ids=lambda level: level.name)
def test_level_does_not_differ_from_itself(level) -> None:
    assert diff_levels(level, level) == ()


def test_next_level_only_widens() -> None:
    """The order of the levels, seen from the diff."""
    for one, other in zip(load_levels(), load_levels()[1:], strict=False):
        changes = diff_levels(one, other)
        assert not [one for one in changes if one.effect is Effect.NARROWS]
        assert [one for one in changes if one.effect is Effect.WIDENS]


def test_way_back_turns_every_effect_around() -> None:
    pure, numeric = load_level("pure"), load_level("numeric")
    there, back = diff_levels(pure, numeric), diff_levels(numeric, pure)
    assert {one.path for one in there} == {one.path for one in back}
    assert not [one for one in back if one.effect is Effect.WIDENS]


@pytest.mark.parametrize(
    ("before", "after", "path", "effect"),
    [
        ("", "[levels.pure]\nopen_to=['*']", "levels.pure.open_to", "widens"),
        (
            "[levels.pure]\nopen_to=['a']",
            "[levels.pure]\nopen_to=['a']\nreview='manual'",
            "levels.pure.review",
            "narrows",
        ),
        ("", "[deny]\nmodules=['re']", "deny.modules", "narrows"),
        ("[deny]\nmodules=['re']", "", "deny.modules", "widens"),
        ("", "[limits]\nsource_bytes=9", "limits.source_bytes", "narrows"),
        (
            "",
            "[quotas.researcher]\nrunning_tasks=9999",
            "quotas.researcher.running_tasks",
            "widens",
        ),
    ],
)
def test_change_of_a_policy_has_its_effect(before, after, path, effect) -> None:
    [change] = diff_policies(policy(before), policy(after))
    assert (change.path, change.effect) == (path, effect)
    [back] = diff_policies(policy(after), policy(before))
    assert {change.effect, back.effect} == {Effect.WIDENS, Effect.NARROWS}


def test_sum_counts_each_kind() -> None:
    changes = diff_policies(policy(""), policy("[deny]\nmodules=['re']"))
    assert render_changes(changes).endswith("1 changes: 0 widens, 1 narrows, 0 other")


@given(st.integers(1, 9), st.integers(1, 9))
def test_amount_up_widens_and_down_narrows(one: int, other: int) -> None:
    base = default_policy()
    changed = [
        msgspec.structs.replace(
            base, limits=msgspec.structs.replace(base.limits, ast_nodes=number)
        )
        for number in (one, other)
    ]
    found = [change.effect for change in diff_policies(*changed)]
    if one == other:
        assert found == []
    else:
        assert found == [Effect.WIDENS if other > one else Effect.NARROWS]

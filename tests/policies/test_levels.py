import pytest

from stoilo.core.errors import UsageError
from stoilo.policies.levels import (
    check_level_name,
    level_names,
    load_level,
    load_levels,
)


def test_shipped_levels_come_narrowest_first() -> None:
    assert level_names()[:2] == ("pure", "numeric")
    assert [level.order for level in load_levels()] == sorted(
        level.order for level in load_levels()
    )


@pytest.mark.parametrize("name", ["", "PURE", "../pure", "no such"])
def test_unknown_level_is_a_usage_error(name: str) -> None:
    with pytest.raises(UsageError, match="STO-P002"):
        load_level(name)


def test_empty_level_name_means_choose_for_me() -> None:
    check_level_name("")


def test_higher_level_hands_out_all_that_a_lower_one_does() -> None:
    for low, high in zip(load_levels(), load_levels()[1:], strict=False):
        assert set(low.builtins) <= set(high.builtins)
        assert set(low.travelling_types) <= set(high.travelling_types)
        for name, rule in low.modules.items():
            assert set(rule.names) <= set(high.modules[name].names), name


def test_higher_level_has_no_smaller_limits() -> None:
    for low, high in zip(load_levels(), load_levels()[1:], strict=False):
        for field in low.max_limits().__slots__:
            assert getattr(low.max_limits(), field) <= getattr(high.max_limits(), field)


def test_digest_names_the_level() -> None:
    assert len({level.digest for level in load_levels()}) == len(load_levels())

"""Which shard keeps a key: evenly, whatever the order, moving little."""

from collections import Counter

import pytest

from stoilo.core.errors import UsageError
from stoilo.learn.store.server import POINTS, Ring

KEYS = [f"layer{index}.weight" for index in range(5000)]
NAMES = tuple(f"shard{index}" for index in range(5))


def test_there_are_a_hundred_points_and_more_of_each_shard():
    assert POINTS >= 100


def test_loads_are_near_each_other():
    loads = Counter(map(Ring(NAMES).owner, KEYS)).values()
    assert max(loads) < 1.35 * len(KEYS) / 5
    assert min(loads) > 0.65 * len(KEYS) / 5


def test_control_with_one_point_each_loads_are_far_apart():
    loads = Counter(map(Ring(NAMES, points=1).owner, KEYS)).values()
    assert max(loads) > 1.35 * len(KEYS) / 5


def test_new_shard_takes_its_share_and_moves_nothing_between_the_others():
    before, after = Ring(NAMES), Ring((*NAMES, "shard5"))
    moved = [key for key in KEYS if before.owner(key) != after.owner(key)]
    assert {after.owner(key) for key in moved} == {"shard5"}
    assert 0.1 * len(KEYS) < len(moved) < 0.25 * len(KEYS)


def test_order_of_names_does_not_matter():
    one, other = Ring(NAMES), Ring(NAMES[::-1])
    assert list(map(one.owner, KEYS)) == list(map(other.owner, KEYS))


def test_grouped_keys_are_all_there_and_where_they_belong():
    ring = Ring(NAMES)
    groups = ring.group(KEYS)
    assert sum(map(len, groups.values())) == len(KEYS)
    assert all(ring.owner(key) == name for name in groups for key in groups[name])


@pytest.mark.parametrize("names", [(), ("a", "a")])
def test_ring_without_shards_or_with_one_twice_is_refused(names):
    with pytest.raises(UsageError, match="STO-T040"):
        Ring(names)

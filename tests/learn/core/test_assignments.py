import itertools

import numpy as np
import pytest

from stoilo.core.errors import UsageError
from stoilo.learn.core.assignments import Assignment, assign_duplicate, assign_iid
from stoilo.learn.core.data import Part


def count(size):
    return Part(np.arange(size), np.arange(size) % 10)


@pytest.mark.parametrize(
    ("nodes", "redundancy", "blocks", "each"),
    [(4, 2, 6, 3), (5, 3, 10, 6), (4, 1, 4, 1), (3, 3, 1, 1)],
)
def test_iid_gives_a_block_to_each_set_of_nodes(nodes, redundancy, blocks, each):
    dealt = assign_iid(nodes, redundancy)
    assert (dealt.blocks, len({*dealt.owners})) == (blocks, blocks)
    owned = [sum(node in own for own in dealt.owners) for node in range(nodes)]
    assert owned == [each] * nodes


def covers(dealt, present):
    return all({*own} & {*present} for own in dealt.owners)


@pytest.mark.parametrize(("nodes", "redundancy"), [(4, 2), (5, 3), (6, 2)])
def test_all_but_r_minus_one_nodes_hold_all_blocks_and_fewer_do_not(nodes, redundancy):
    dealt = assign_iid(nodes, redundancy)
    least = nodes - redundancy + 1
    groups = itertools.combinations(range(nodes), least)
    assert all(covers(dealt, group) for group in groups)
    fewer = itertools.combinations(range(nodes), least - 1)
    assert not any(covers(dealt, group) for group in fewer)


def test_duplicates_lie_on_nodes_that_follow_each_other():
    assert assign_duplicate(6, 2).owners == ((0, 1), (2, 3), (4, 5))


@pytest.mark.parametrize(
    "make",
    [
        lambda: assign_duplicate(5, 2),
        lambda: assign_iid(3, 4),
        lambda: assign_iid(3, 0),
        lambda: assign_iid(30, 15),
        lambda: Assignment(2, ((0,), (2,))),
        lambda: Assignment(2, ((0, 0), (1,))),
        lambda: Assignment(2, ((0,), (1,)), (1.0,)),
        lambda: assign_iid(2).adjust_ratio((1.0, 0.0)),
    ],
)
def test_assignment_that_leaves_a_block_without_owner_or_size_is_refused(make):
    with pytest.raises(UsageError, match="STO-T040"):
        make()


def test_batch_is_cut_into_slices_block_by_block():
    parts = assign_iid(3).deal(count(20), 2)
    assert [part.x.tolist() for part in parts] == [
        [0, 1, 6, 7, 12, 13, 18, 19],
        [2, 3, 8, 9, 14, 15],
        [4, 5, 10, 11, 16, 17],
    ]


@pytest.mark.parametrize("seed", range(5))
def test_adjusted_blocks_add_up_to_the_batch(seed):
    ratios = np.random.default_rng(seed).uniform(0.2, 3.0, 7)
    sizes = assign_iid(7).adjust_ratio(ratios).sizes(16)
    assert sum(sizes) == 7 * 16
    assert np.abs(np.array(sizes) - ratios / ratios.sum() * 112).max() < 1


def test_unequal_blocks_get_samples_by_their_ratio():
    parts = assign_iid(2).adjust_ratio((3, 1)).deal(count(40), 4)
    assert [len(part) for part in parts] == [30, 10]


def test_too_few_samples_to_begin_each_block_are_refused():
    with pytest.raises(UsageError, match="STO-T004"):
        assign_iid(3).deal(count(4), 2)

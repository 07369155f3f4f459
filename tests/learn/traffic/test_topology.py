"""Trees as they grew, from the events alone."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stoilo.learn.traffic.record import Event
from stoilo.learn.traffic.topology import list_nodes, list_trees
from tests.support.traffic import make_record


def sent(at, node, sender, number=1, *ids):
    return Event(at, "sent", node, number, sender, 8, 2.0, ids=ids)


def draw(tree):
    return [(step.node, step.partner, step.depth) for step in tree.steps]


def test_version_hangs_from_whom_each_had_it_first():
    events = [
        Event(100, "version", "a", 1),
        sent(102, "b", "a"),
        sent(103, "d", "a"),
        sent(104, "c", "b"),
        sent(105, "c", "d"),  # again, when c had it
    ]
    (tree,) = list_trees(events)
    found = [("a", "", 0), ("b", "a", 1), ("c", "b", 2), ("d", "a", 1)]
    assert draw(tree) == found
    assert (tree.name, tree.root, tree.mean_s, tree.last_s) == ("version 1", "a", 3, 4)
    assert (tree.steps[2].at, tree.steps[2].rate) == (4, 4.0)


def test_round_hangs_from_whom_each_part_went_to_last():
    events = [
        Event(100, "opened", "a", 1),
        sent(101, "b", "c", 1, "c"),  # b dies with it
        sent(102, "d", "c", 1, "c"),
        sent(103, "a", "d", 1, "c", "d"),
    ]
    (tree,) = list_trees(events)
    assert draw(tree) == [("a", "", 0), ("d", "a", 1), ("c", "d", 2)]
    assert tree.name == "round 1"


def test_round_in_segments_is_the_tree_of_the_first_and_lasts_until_the_last_ends():
    first, second = sent(2, "a", "b", 1, "b"), sent(3, "c", "b", 1, "b")
    events = [Event(1, "opened", "a", 1), first, replace(second, segment=1)]
    (tree,) = list_trees(events)
    assert draw(tree) == [("a", "", 0), ("b", "a", 1)]
    assert (tree.mean_s, tree.last_s) == (1, 2)


def test_version_and_round_of_one_number_are_two_trees_and_the_newest_is_last():
    events = [
        Event(1, "version", "a", 1),
        Event(2, "opened", "a", 1),
        sent(3, "b", "a"),
        sent(4, "a", "b", 1, "b"),
        Event(5, "version", "b", 1),  # it begins again
    ]
    assert [one.name for one in list_trees(events)] == ["round 1", "version 1"]
    assert draw(list_trees(events)[1]) == [("b", "", 0)]


def test_what_began_before_the_events_is_left_out():
    assert list_trees([sent(3, "b", "a")]) == []


NAMES = st.sampled_from("abcd")
EVENTS = st.builds(
    Event,
    st.floats(0, 9),
    st.sampled_from(["version", "opened", "sent"]),
    NAMES,
    st.integers(1, 2),
    NAMES,
    ids=st.sampled_from([(), ("a",)]),
)


@given(st.lists(EVENTS))
def test_whatever_is_said_each_node_stands_once_and_below_its_partner(events):
    for tree in list_trees(events):
        names = [step.node for step in tree.steps]
        assert names[0] == tree.root
        assert len(names) == len({*names})
        for index, step in enumerate(tree.steps):
            depths = {one.node: one.depth for one in tree.steps[:index]}
            assert step.depth == (depths[step.partner] + 1 if step.partner else 0)


def test_nodes_are_those_that_are_there_and_those_at_fault():
    rows = {one.name: one for one in list_nodes(make_record())}
    assert (rows["n12"].place, rows["n12"].faults) == ("", ["bytes"])
    assert rows["root"].versions == [1, 2, 3]
    assert (rows["root"].got, rows["root"].gave) == (12 * (9 << 20), 9 * (9 << 20))
    assert sum(one.got for one in rows.values()) == sum(r.gave for r in rows.values())

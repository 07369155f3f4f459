import signal
import threading
from contextlib import suppress

import pytest

from stoilo.core.errors import DeniedError, UnreachableError
from stoilo.learn.store import protocol as p
from stoilo.learn.store.place import read_place
from stoilo.learn.traffic import agent, owner, wire
from stoilo.learn.traffic.holdings import Kept
from tests.support.traffic import FORGED, MAD, MORTAL

MODEL = bytes(range(256)) * 1024


def has_spread(coordinator, number, names):
    return lambda: {*names} <= {*coordinator.show(0).versions.get(number, [])}


def everybody(count):
    return ["root", *(f"n{i}" for i in range(1, count + 1))]


def workers(count):
    return everybody(count)[1:]


def test_version_reaches_every_node_and_one_that_comes_later(field):
    coordinator = field.lead(everybody(4))
    for name in everybody(3):
        field.nodes.start(name, coordinator)
    field.publish(1, MODEL)
    field.wait_until(has_spread(coordinator, 1, everybody(3)))
    field.nodes.start("n4", coordinator)
    field.wait_until(has_spread(coordinator, 1, everybody(4)))
    assert owner.collect(field.nodes.place("n4"), 1)[1] == MODEL
    sent = [one for one in coordinator.show().events if one.what == "sent"]
    assert sorted(one.node for one in sent) == workers(4)
    assert coordinator.show().named == {}


def test_node_with_little_room_says_so_and_is_asked_no_more(field, tmp_path):
    coordinator = field.lead(["root", "small"])
    field.nodes.start("root", coordinator)
    told = read_place(coordinator.folder / "nodes" / "small.json")
    small = agent.Agent(tmp_path / "s", "127.0.0.1:0", [told], kept=Kept(1))
    threading.Thread(target=small.run, daemon=True).start()
    for number in (2, 3):
        field.publish(number, MODEL + bytes([number]))
        field.wait_until(has_spread(coordinator, number, ["root", "small"]))
    field.publish(1, MODEL)
    field.wait_until(has_spread(coordinator, 1, ["root"]))
    field.wait_until(lambda: coordinator.show(0).versions[2] == ["root"])
    assert [one.number for one in small.holdings.list()] == [3]
    sent = [one.number for one in coordinator.show().events if one.what == "sent"]
    assert sent == [2, 3]
    with pytest.raises(UnreachableError, match="no room"):
        owner.give(small.place, 1, MODEL)
    small.close()


def test_versions_that_overlap_do_not_mix(settled):
    """The third has the bytes of the first, and is another version."""
    for number, name in ((1, "root"), (2, "n1"), (3, "n2")):
        settled.publish(number, MODEL * (1 + (number == 2)), name)
    for number in (1, 2, 3):
        settled.wait_until(has_spread(settled.coordinators[0], number, everybody(7)))
        for name in everybody(7):
            found = owner.collect(settled.nodes.place(name), number)[1]
            assert found == MODEL * (1 + (number == 2))


def test_time_that_is_no_number_is_recorded_as_the_coordinator_s_own(field):
    coordinator = field.begin(1, n1=MAD)
    field.publish(1, MODEL)
    field.wait_until(has_spread(coordinator, 1, everybody(1)))
    (sent,) = [one for one in coordinator.show().events if one.what == "sent"]
    assert 0 < sent.seconds < 60


@pytest.mark.parametrize("count", range(1, 8))
def test_each_contribution_counts_once(settled, count):
    names = workers(count)
    settled.contribute(count, names, least=8)
    assert settled.collect(count, names) == (names, (1 << count) - 1)


def test_record_says_which_segment_went_where(settled):
    names = workers(2)
    settled.contribute(40, names, least=8)
    settled.collect(40, names)

    def find_sent():  # the last report may come after the sum is whole
        events = settled.coordinators[0].show().events
        found = [e for e in events if (e.what, e.number) == ("sent", 40)]
        return found if len(found) >= 3 * len(names) else None

    sent = settled.wait_until(find_sent)
    assert sorted((e.segment, e.size) for e in sent) == [
        (n, 8) for n in range(3) for _ in names
    ]
    assert {e.node for e in sent if len(e.ids) == len(names)} <= {"root"}


@pytest.mark.slow
def test_each_contribution_counts_once_of_up_to_29(field):
    field.begin(29)
    for count in range(1, 30):
        names = workers(count)
        field.contribute(count, names)
        assert field.collect(count, names) == (sorted(names), (1 << count) - 1)


@pytest.mark.parametrize(
    ("count", "least"), [(3, 8), pytest.param(9, 24, marks=pytest.mark.slow)]
)
def test_each_counts_once_when_every_aggregator_is_killed(field, count, least):
    names, killed = workers(count), []
    field.begin(count, **dict.fromkeys(names, MORTAL))
    field.contribute(1, names, least)

    def is_collected():
        for name in [one for one in names if not field.nodes.is_alive(one)]:
            killed.append(name)
            field.nodes.start(name, *field.coordinators)
        with suppress(UnreachableError):  # nothing is whole yet
            found = field.collect(1, names, wait_s=0.5)
            return found if len(found[0]) == count else None
        return None

    assert field.wait_until(is_collected) == (names, (1 << count) - 1)
    assert len(killed) == len({*killed}) > 0


@pytest.mark.slow
def test_sum_goes_on_without_a_dead_node_from_those_who_gave_to_it(field):
    names = workers(6)
    field.begin(6, **dict.fromkeys(names[:3], MORTAL))
    field.contribute(1, names, least=8)
    ids, bits = field.collect(1, names, wait_s=3.0)
    dead = [name for name in names if not field.nodes.is_alive(name)]
    assert dead
    assert {*ids} >= {*names} - {*dead}
    assert bits == sum(1 << names.index(name) for name in ids)


def test_coordinator_that_comes_back_learns_from_the_nodes(field):
    coordinator = field.begin(6)
    names = workers(6)
    field.publish(1, MODEL)
    field.contribute(1, names[:3], least=8)
    coordinator.kill()
    field.contribute(1, names, least=8)
    coordinator.start()
    assert field.collect(1, names) == (names, (1 << 6) - 1)
    field.wait_until(has_spread(coordinator, 1, everybody(6)))


def test_two_coordinators_do_no_harm_and_one_takes_over(field):
    pair = field.lead(everybody(5)), field.lead(everybody(5))
    for name in everybody(5):
        field.nodes.start(name, *pair)
    names = workers(5)
    for number in (1, 2, 3):
        field.publish(number, MODEL)
        field.contribute(number, names, least=8)
        assert field.collect(number, names) == (names, (1 << 5) - 1)

    def find_leader():
        found = [one for one in pair if len(one.show(0).nodes) == len(everybody(5))]
        return found[0] if len(found) == 1 else None

    leader = field.wait_until(find_leader)
    other = next(one for one in pair if one is not leader)
    field.wait_until(lambda: other.show(0).nodes == {})
    leader.kill()
    field.publish(4, MODEL, "n1")
    field.wait_until(has_spread(other, 4, everybody(5)))
    assert other.show(0).term > wire.Term(1)


def test_who_gives_other_bytes_is_named_and_the_others_finish(field):
    coordinator = field.begin(5, n1=FORGED)
    for number in range(1, 200):  # whom it serves is chance: two within five versions
        field.publish(number, MODEL + bytes([number]))
        honest = [name for name in everybody(5) if name != "n1"]
        field.wait_until(has_spread(coordinator, number, honest))
        if coordinator.show(0).named:
            break
    assert coordinator.show(0).named == {"n1": ["bytes"]}
    failed = [one for one in coordinator.show().events if one.what == "failed"]
    assert {one.sender for one in failed} == {"n1"}


@pytest.mark.slow  # it waits for a silence to last
def test_node_that_stands_still_is_left_and_taken_in_again(field):
    coordinator = field.begin(4)
    field.nodes.signal("n2", signal.SIGSTOP)
    field.publish(1, MODEL)
    others = [name for name in everybody(4) if name != "n2"]
    field.wait_until(has_spread(coordinator, 1, others))
    field.wait_until(lambda: "n2" not in coordinator.show(0).nodes)
    left = [one for one in coordinator.show().events if one.what == "left"]
    assert [(one.node, one.why) for one in left] == [("n2", "was silent")]
    field.nodes.signal("n2", signal.SIGCONT)
    field.wait_until(has_spread(coordinator, 1, everybody(4)))


def test_killed_node_has_what_it_had_when_it_comes_back(settled):
    coordinator = settled.coordinators[0]
    settled.publish(20, MODEL)
    settled.wait_until(has_spread(coordinator, 20, everybody(7)))
    settled.nodes.signal("n1", signal.SIGKILL)
    settled.wait_until(lambda: "n1" not in coordinator.show(0).nodes)
    settled.nodes.start("n1", coordinator)
    settled.wait_until(has_spread(coordinator, 20, everybody(7)))
    sent = [e for e in coordinator.show().events if (e.what, e.number) == ("sent", 20)]
    assert sorted(one.node for one in sent) == workers(7)


def test_sum_that_lacks_somebody_says_whom_and_one_of_nothing_fails(settled):
    with pytest.raises(UnreachableError, match="in time"):
        settled.collect(30, workers(3), wait_s=0.1)
    settled.contribute(30, workers(2))
    settled.wait_until(lambda: len(settled.collect(30, workers(3), 0.5)[0]) == 2)
    assert settled.collect(30, workers(3), wait_s=0.1) == (workers(2), 0b11)


def test_bytes_that_are_not_the_owners_digest_are_not_held(settled):
    item = wire.Item(99, "0" * 64, 3)
    with settled.nodes.place("root").connect(30.0) as stream:
        p.send_frame(stream, wire.Give(item))
        wire.receive(stream, p.Answer)
        stream.sendall(b"abc")
        with pytest.raises(UnreachableError):
            wire.receive(stream, p.Answer)
    assert 99 not in settled.coordinators[0].show().versions


def test_token_of_nodes_opens_nothing_that_is_the_owners(tmp_path):
    node = agent.Agent(tmp_path, "127.0.0.1:0", [])
    threading.Thread(target=node.run, daemon=True).start()
    item = owner.give(node.place, 1, MODEL)
    assert owner.collect(node.place, 1) == (item, MODEL)
    with pytest.raises(UnreachableError, match="no value"):
        owner.collect(node.for_nodes, 1)
    stranger = type(node.place)(node.place.shard, "another", node.place.ca)
    with pytest.raises(DeniedError):
        owner.collect(stranger, 1)
    node.close()

"""Three-phase start: the pure machines under every order of messages, losses and kills."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoilo.core.digests import content_digest
from stoilo.learn.coordinator.gang import (
    FIRST_S,
    Cancel,
    CanCommit,
    DoCommit,
    Gang,
    Inputs,
    Member,
    PreCommit,
    Renew,
    Stage,
)

DATA = {content_digest(one): one for one in (b"model", b"settings")}
NAMES = ("a", "b", "c")
LEASE_S = 15.0


class Network:
    """Members, a coordinator, and messages on the way, delivered as a test likes."""

    def __init__(self, *, lease_s=LEASE_S, most_lease_s=60.0, group="g"):
        self.now, self.is_dead, self.sent_bytes = 0.0, False, 0
        self.members = {n: Member(Inputs(), most_lease_s, self.tell(n)) for n in NAMES}
        self.begun, self.was_ready = set(), set()
        self.way = []
        self.gang = Gang(group, NAMES, DATA, lease_s=lease_s, staging_s=20.0)
        self.send(self.gang.begin(self.now))

    def tell(self, name):
        return lambda _group, ready: ready and self.begun.add(name)

    def send(self, out):
        for name, messages in out.items():
            self.way += [(name, message) for message in messages]

    def deliver(self, at, *, keep=False):
        name, message = self.way[at] if keep else self.way.pop(at)
        if name.startswith("<"):
            if not self.is_dead:
                self.send(self.gang.hear(name[1:], message, self.now))
            return
        self.sent_bytes += len(getattr(message, "data", b""))
        said = self.members[name].hear(message, self.now)
        if said.state in {"ready", "running"}:
            self.was_ready.add(name)
        self.way.append((f"<{name}", said))

    def pass_time(self, seconds):
        self.now += seconds
        for member in self.members.values():
            member.pass_time(self.now)
        if not self.is_dead:
            self.send(self.gang.pass_time(self.now))

    def settle(self):
        while self.way:
            self.deliver(0)

    @property
    def states(self):
        return {name: member.state for name, member in self.members.items()}


def all_are(state):
    return dict.fromkeys(NAMES, state)


def test_all_start_with_their_inputs_and_are_told_who_is_ready():
    network = Network()
    network.settle()
    assert network.gang.phase == "started"
    assert network.states == all_are("running")
    assert all(set(DATA) == set(m._inputs) for m in network.members.values())


def test_inputs_that_are_there_are_not_sent_again():
    network = Network()
    network.members["a"]._inputs.update(DATA)
    network.settle()
    assert network.gang.phase == "started"
    assert network.sent_bytes == 2 * sum(map(len, DATA.values()))


def test_input_that_is_not_what_its_digest_names_is_not_kept():
    member = Member(Inputs())
    (digest, *_) = DATA
    for message in (CanCommit("g", 5.0), PreCommit("g", [digest])):
        member.hear(message, 0.0)
    assert member.hear(Stage("g", digest, b"other"), 0.0).missing == [digest]
    assert member.hear(DoCommit("g", ["a"]), 0.0).state == "promised"


def test_busy_member_cancels_the_group_and_is_named():
    network = Network()
    network.members["b"].hear(CanCommit("another", 30.0), 0.0)
    network.settle()
    assert network.gang.failed == {"b": "is busy"}
    assert network.states == all_are("free") | {"b": "promised"}


def test_silent_member_is_named_after_the_first_limit_and_all_are_free():
    network = Network()
    network.way = [one for one in network.way if one[0] != "c"]
    network.settle()
    network.pass_time(FIRST_S)
    network.settle()
    assert network.gang.failed == {"c": "is silent"}
    assert network.states == all_are("free")


def advance(network, phase):
    while network.gang.phase != phase:
        network.deliver(0)
    for _ in range(len(network.way)):  # what the phase began with reaches the members
        network.deliver(0)


PHASES = ["can_commit", "pre_commit", "do_commit", "started"]


@pytest.mark.parametrize("phase", PHASES)
def test_coordinator_gone_in_a_phase_leaves_nobody_reserved(phase):
    network = Network()
    advance(network, phase)
    network.is_dead = True
    assert "free" not in network.states.values()
    network.settle()
    network.pass_time(LEASE_S)
    assert network.states == all_are("free")


@pytest.mark.parametrize("phase", PHASES)
def test_without_leases_the_same_leaves_members_reserved(phase):
    network = Network(lease_s=float("inf"), most_lease_s=float("inf"))
    advance(network, phase)
    network.is_dead = True
    network.settle()
    network.pass_time(1e9)
    assert "free" not in network.states.values()


def test_renewals_keep_a_group_for_longer_than_a_lease():
    network = Network()
    network.settle()
    for _ in range(10):
        network.pass_time(LEASE_S / 3)
        network.send(network.gang.renew())
        network.settle()
    assert network.states == all_are("running")


def test_member_that_let_go_ends_the_group_at_the_next_renewal():
    network = Network()
    network.settle()
    network.members["b"] = Member(Inputs())  # started again
    network.send(network.gang.renew())
    network.settle()
    assert network.gang.failed == {"b": "has let go"}
    assert network.states == all_are("free")


def test_group_that_ended_is_never_joined_again():
    member, late = (
        Member(Inputs()),
        [CanCommit("g", 5.0), PreCommit("g", []), Renew("g")],
    )
    member.hear(Cancel("g"), 0.0)
    assert {member.hear(one, 1.0).state for one in late} == {"free"}


STEP = st.one_of(
    st.tuples(st.sampled_from(["deliver", "twice", "drop"]), st.integers(0, 30)),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 4.0, 8.0])),
    st.tuples(st.just("restart"), st.sampled_from(NAMES)),
    st.tuples(st.sampled_from(["round", "renew", "round", "die"]), st.none()),
)


def take(network, act, what):
    match act:
        case "wait":
            network.pass_time(what)
        case "round":
            for _ in range(len(network.way)):
                network.deliver(0)
        case "restart":
            network.members[what] = Member(Inputs(), 60.0, network.tell(what))
        case "renew" if not network.is_dead:
            network.send(network.gang.renew())
        case "die":
            network.is_dead = True
        case "drop" if network.way:
            network.way.pop(what % len(network.way))
        case "deliver" | "twice" if network.way:
            network.deliver(what % len(network.way), keep=act == "twice")


@settings(max_examples=300, deadline=None)
@given(st.lists(STEP, max_size=60))
def test_any_order_starts_all_or_reserves_nobody(steps):
    network = Network()
    for act, what in steps:
        take(network, act, what)
        assert not network.begun or network.was_ready == set(NAMES)
        assert network.gang.phase != "started" or network.begun == set(NAMES)
    network.is_dead = True
    network.settle()
    network.pass_time(LEASE_S)
    assert network.states == all_are("free")

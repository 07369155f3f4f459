from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.fairqueue import FairQueue, Shares, Turn

SHARES = Shares(slots=3, busy_above=10.0, half_life_s=600.0)
HOSTILE, HONEST = 1, 2
ATTACK = [(0.0, HOSTILE, 20.0)] * 2000
"""2,000 validators of one account that run to their wall limit, s."""


class Fifo:
    """What there was before: first come, first served."""

    def __init__(self) -> None:
        self._waiting: deque[Turn[float]] = deque()
        self._running = 0

    def put(self, account: int, group: str, item: float) -> None:
        self._waiting.append(Turn(account, group, item))

    def take(self, _now: float) -> Turn[float] | None:
        if self._running >= SHARES.slots or not self._waiting:
            return None
        self._running += 1
        return self._waiting.popleft()

    def finish(self, _turn: Turn[float], _cost: float, _now: float) -> None:
        self._running -= 1


@dataclass
class Simulation:
    """A queue under (time, account, cost) on a virtual clock."""

    queue: FairQueue[float] | Fifo
    waits: dict[int, list[float]] = field(default_factory=dict)
    held: list[dict[int, int]] = field(default_factory=list)

    def run(self, arrivals: list[tuple[float, int, float]], until: float) -> None:
        events: list[tuple[float, int, int, object]] = []
        for number, arrival in enumerate(sorted(arrivals)):
            heapq.heappush(events, (arrival[0], 1, number, arrival))
        arrived: dict[tuple[int, str], float] = {}
        running: dict[int, int] = {}
        serial = len(arrivals)
        while events and events[0][0] <= until:
            now, _, number, event = heapq.heappop(events)
            if isinstance(event, Turn):
                running[event.account] -= 1
                self.queue.finish(event, event.item, now)
            elif isinstance(event, tuple):
                _, account, cost = event
                arrived[account, str(number)] = now
                self.queue.put(account, str(number), cost)
            while (turn := self.queue.take(now)) is not None:
                came = arrived[turn.account, turn.group]
                self.waits.setdefault(turn.account, []).append(now - came)
                running[turn.account] = running.get(turn.account, 0) + 1
                self.held.append(dict(running))
                serial += 1
                heapq.heappush(events, (now + turn.item, 0, serial, turn))


def honest(every_s: float, count: int) -> list[tuple[float, int, float]]:
    return [(60.0 + every_s * number, HONEST, 0.01) for number in range(count)]


def test_quiet_account_does_not_wait_for_one_with_slow_items() -> None:
    simulation = Simulation(FairQueue(SHARES))
    simulation.run(ATTACK + honest(1.0, 300), until=600.0)
    assert len(simulation.waits[HONEST]) == 300
    assert max(simulation.waits[HONEST]) == 0.0


def test_first_come_first_served_would_let_it_wait_for_all_of_them() -> None:
    simulation = Simulation(Fifo())
    simulation.run(ATTACK + honest(1.0, 300), until=600.0)
    assert HONEST not in simulation.waits


def test_many_busy_accounts_leave_a_place_free_together() -> None:
    crowd = [(0.0, 10 + number % 50, 20.0) for number in range(2000)]
    simulation = Simulation(FairQueue(SHARES))
    used_up = 20.0 * 50 / SHARES.slots + 60.0  # each was let in once
    late = [(used_up + number, HONEST, 0.01) for number in range(200)]
    simulation.run(crowd + late, until=used_up + 300)
    assert max(simulation.waits[HONEST]) == 0.0


def test_busy_accounts_share_what_is_left() -> None:
    both = [(0.0, account, 5.0) for account in (1, 2) for _ in range(500)]
    simulation = Simulation(FairQueue(SHARES))
    simulation.run(both, until=600.0)
    first, second = (len(simulation.waits[account]) for account in (1, 2))
    assert abs(first - second) <= 2
    assert first + second >= 2 * 600 / 5


def test_groups_of_one_account_take_turns() -> None:
    queue: FairQueue[int] = FairQueue(SHARES)
    for number in range(100):
        queue.put(1, "large", number)
    queue.put(1, "small", 0)
    groups = []
    for _ in range(4):
        turn = queue.take(0.0)
        assert turn is not None
        groups.append(turn.group)
        queue.finish(turn, 1.0, 0.0)
    assert groups == ["large", "small", "large", "large"]


def test_dropped_group_is_not_served() -> None:
    queue: FairQueue[int] = FairQueue(SHARES)
    for item in (1, 2):
        queue.put(1, "cancelled", item)
    assert queue.drop(1, "cancelled") == [1, 2]
    assert queue.take(0.0) is None
    assert queue.drop(1, "cancelled") == queue.drop(7, "unknown") == []


def test_use_is_forgotten_with_time() -> None:
    queue: FairQueue[int] = FairQueue(SHARES)
    queue.put(1, "a", 0)
    turn = queue.take(0.0)
    assert turn is not None
    queue.finish(turn, 40.0, 0.0)
    assert queue.is_busy(1, 0.0)
    assert queue.used(1, SHARES.half_life_s) == pytest.approx(20.0)
    assert not queue.is_busy(1, 3 * SHARES.half_life_s)


def test_accounts_that_want_nothing_are_forgotten() -> None:
    queue: FairQueue[int] = FairQueue(SHARES)
    for account in range(100):
        queue.put(account, "a", 0)
        turn = queue.take(0.0)
        assert turn is not None
        queue.finish(turn, 0.0, 0.0)
    assert queue.accounts == 0


@pytest.mark.parametrize(("slots", "half_life_s"), [(1, 1.0), (2, 0.0)])
def test_shares_that_keep_nothing_free_are_refused(
    slots: int, half_life_s: float
) -> None:
    with pytest.raises(ValueError, match="two slots"):
        Shares(slots, 1.0, half_life_s)


ARRIVALS = st.lists(
    st.tuples(
        st.floats(0, 100), st.integers(0, 4), st.floats(0.01, 30, allow_nan=False)
    ),
    max_size=60,
)


@given(arrivals=ARRIVALS, slots=st.integers(2, 5))
def test_every_item_is_served_once_and_nobody_holds_all_places(
    arrivals: list[tuple[float, int, float]], slots: int
) -> None:
    shares = Shares(slots, busy_above=10.0, half_life_s=600.0)
    simulation = Simulation(FairQueue(shares))
    simulation.run(arrivals, until=1e9)
    assert sum(map(len, simulation.waits.values())) == len(arrivals)
    assert all(max(held.values()) < slots for held in simulation.held)
    assert all(sum(held.values()) <= slots for held in simulation.held)

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.fairqueue import FairRoom

ROOM = 64


def fill(room: FairRoom, account: int) -> int:
    """Take pieces of one until there is no more; returns how many."""
    while room.take(account, 1):
        pass
    return room.of(account)


def test_one_that_is_alone_has_half_of_the_room() -> None:
    assert fill(FairRoom(ROOM), 1) == ROOM // 2


def test_accounts_that_want_all_leave_room_for_the_next() -> None:
    room = FairRoom(ROOM)
    assert [fill(room, account) for account in range(5)] == [32, 16, 8, 4, 2]
    assert room.take(9, 1)


def test_pieces_that_come_back_spread_evenly() -> None:
    room = FairRoom(ROOM)
    for _ in range(ROOM):
        for account in range(4):
            fill(room, account)
        most = max(range(4), key=room.of)
        room.give(most, 1)
    held = [room.of(account) for account in range(4)]
    assert max(held) - min(held) <= 2


def test_more_than_the_room_never_fits() -> None:
    assert not FairRoom(ROOM).take(1, ROOM + 1)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40)), max_size=60))
def test_held_is_the_sum_and_never_over_the_size(moves: list[tuple[int, int]]) -> None:
    room, taken = FairRoom(ROOM), []
    for account, size in moves:
        if room.take(account, size):
            taken.append((account, size))
        elif taken:
            room.give(*taken.pop())
        assert room.held == sum(size for _, size in taken) <= ROOM
        assert room.held == sum(room.of(account) for account in range(4))

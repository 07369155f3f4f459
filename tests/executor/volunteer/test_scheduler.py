"""What a host takes of a reply, however much a project sends."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from stoilo.executor.volunteer.ledger import CopyRecord, Phase
from stoilo.executor.volunteer.scheduler import MOST_PER_SLOT, is_over, within_room

NAMES = st.lists(st.integers(0, 60).map("w_1_{}".format), max_size=60)


def copy(name: str, phase: Phase = Phase.ASSIGNED) -> CopyRecord:
    made = CopyRecord(name, "w_1", "pure", 10, (), "up", "http://x/up", 1000)
    return msgspec.structs.replace(made, phase=phase)


@given(NAMES, NAMES, NAMES, st.integers(1, 4))
def test_host_holds_no_more_than_its_room(
    sent: list[str], busy: list[str], over: list[str], slots: int
) -> None:
    records = {name: copy(name, Phase.UPLOADED) for name in over}
    records |= {name: copy(name) for name in busy[: slots * MOST_PER_SLOT]}
    held = list(records.values())
    taken = within_room([copy(name) for name in sent], held, slots)
    fresh = {one.result for one in taken} - set(records)
    unfinished = sum(not is_over(one) for one in held)
    assert unfinished + len(fresh) <= slots * MOST_PER_SLOT
    assert {one.result for one in taken} >= set(sent) & set(records)


def test_what_is_asked_for_and_what_was_lost_fits() -> None:
    sent = [copy(f"w_1_{number}") for number in range(MOST_PER_SLOT)]
    assert within_room(sent, [], 1) == sent
    assert within_room([*sent, copy("w_2_0")], [], 1) == sent  # one more does not


def test_host_with_full_hands_still_hears_of_new_deadlines() -> None:
    held = [copy(f"w_1_{number}") for number in range(MOST_PER_SLOT)]
    later = msgspec.structs.replace(held[0], deadline=20)
    assert within_room([later, copy("w_2_0")], held, 1) == [later]

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoilo.server.engines.embedded.scheduling.sticky_files import (
    DISK_SHARE,
    MOST_BYTES,
    MOST_FILES,
    Lease,
    cap_bytes,
    files_to_delete,
)

NOW = 1_800_000_000


def lease(name="a", *, size=100, age=0, ends=10, wanted=False, in_use=False):
    return Lease(name, size, NOW - age, NOW + ends, wanted=wanted, in_use=in_use)


LEASES = st.lists(
    st.builds(
        Lease,
        digest=st.text(max_size=3),
        size=st.integers(0, 2**40),
        lent_at=st.integers(0, NOW),
        needed_until=st.integers(0, 2 * NOW),
        wanted=st.booleans(),
        in_use=st.booleans(),
    ),
    max_size=300,
    unique_by=lambda one: one.digest,
)


def test_ended_lease_of_a_file_that_nobody_needs_is_given_back():
    assert files_to_delete([lease(ends=0)], MOST_BYTES, NOW) == ("a",)


def test_lease_that_runs_keeps_a_file_that_nobody_names():
    assert files_to_delete([lease(ends=1)], MOST_BYTES, NOW) == ()


def test_file_that_some_workunit_needs_stays_after_its_lease():
    assert files_to_delete([lease(ends=0, wanted=True)], MOST_BYTES, NOW) == ()


def test_beyond_the_cap_the_longest_unused_goes_first():
    files = [lease("new", age=1), lease("old", age=9), lease("mid", age=5)]
    assert files_to_delete(files, 250, NOW) == ("old",)
    assert files_to_delete(files, 150, NOW) == ("old", "mid")


def test_too_many_small_files_are_given_back_too():
    files = [lease(f"{n:03d}", size=1, age=n) for n in range(MOST_FILES + 2)]
    gone = files_to_delete(files, MOST_BYTES, NOW)
    assert gone == (f"{MOST_FILES + 1:03d}", f"{MOST_FILES:03d}")


def test_file_of_a_running_copy_stays_beyond_the_cap():
    assert files_to_delete([lease(in_use=True, ends=0)], 0, NOW) == ()


@given(LEASES, st.integers(0, 2**41))
def test_cap_holds_as_far_as_running_copies_allow(leases, cap):
    gone = set(files_to_delete(leases, cap, NOW))
    stay = [one for one in leases if one.digest not in gone]
    assert not {one.digest for one in leases if one.in_use} & gone
    if any(not one.in_use for one in stay):
        assert sum(one.size for one in stay) <= cap
        assert len(stay) <= MOST_FILES


@given(LEASES)
def test_under_the_cap_only_what_nobody_needs_goes(leases):
    few = leases[:MOST_FILES]
    gone = set(files_to_delete(few, sum(one.size for one in few), NOW))
    assert all(not one.wanted for one in few if one.digest in gone)


def test_host_that_says_nothing_of_its_disk_keeps_the_most():
    assert cap_bytes(0, 0.0) == MOST_BYTES


@given(st.integers(0, 2**50), st.floats(0.1, 1e300))
def test_host_keeps_at_most_its_share_of_the_disk(held, free):
    assert 0 <= cap_bytes(held, free) <= min(MOST_BYTES, (held + free) / DISK_SHARE)

"""Rates: a bucket refills, strangers push out each other, a window is exact."""

from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.rate_limit import TokenBuckets, WindowLimit


def test_bucket_is_empty_after_its_tokens_and_refills_with_time():
    now = [0.0]
    buckets = TokenBuckets(2, clock=lambda: now[0])
    assert [buckets.allow("a") for _ in range(3)] == [True, True, False]
    assert buckets.allow("b")
    now[0] = 30.0
    assert [buckets.allow("a") for _ in range(2)] == [True, False]


def test_made_up_names_do_not_fill_the_memory():
    buckets = TokenBuckets(1, names=3, clock=lambda: 0.0)
    assert all(buckets.allow(str(name)) for name in range(100))
    assert len(buckets._buckets) == 3


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5)), max_size=60))
def test_no_window_ever_holds_more_than_allowed(steps: list[tuple[int, int]]):
    now = [0]
    limit = WindowLimit(7, 60, lambda: now[0])
    taken: list[tuple[int, int]] = []
    for pause, count in steps:
        now[0] += pause
        if limit.take(count):
            taken.append((now[0], count))
        window = [n for at, n in taken if at > now[0] - 60]
        assert sum(window) <= 7


def test_refused_count_spends_nothing():
    limit = WindowLimit(3, 60, lambda: 0)
    assert not limit.take(4)
    assert limit.take(3)
    assert not limit.take(1)

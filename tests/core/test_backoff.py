"""Backoff: pauses grow to the longest, jitter only shortens them."""

from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.rate_limit import Backoff


def test_pauses_double_up_to_the_longest_and_start_over_after_a_success():
    backoff = Backoff(1.0, 5.0, draw=lambda: 0.0)
    assert [backoff.next_pause() for _ in range(5)] == [1, 2, 4, 5, 5]
    backoff.reset()
    assert backoff.next_pause() == 1


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 2000))
def test_pause_lies_between_its_shortened_and_its_whole_length(draw, jitter, failures):
    backoff = Backoff(0.5, 60.0, jitter=jitter, draw=lambda: draw)
    whole = Backoff(0.5, 60.0, jitter=0.0)
    for _ in range(min(failures, 40)):
        pause, most = backoff.next_pause(), whole.next_pause()
        assert most * (1 - jitter) <= pause <= most <= 60.0

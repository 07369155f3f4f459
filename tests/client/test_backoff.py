from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoilo.client.backoff import POLLING, RECONNECTING, Backoff


@given(st.sampled_from([POLLING, RECONNECTING]), st.integers(1, 60))
def test_pauses_grow_up_to_the_cap(pauses: object, count: int) -> None:
    backoff = Backoff(POLLING if pauses is POLLING else RECONNECTING)
    found = [backoff.next_pause() for _ in range(count)]
    assert all(0 < pause <= backoff.pauses.cap_s for pause in found)
    if count > 30:
        assert found[-1] >= backoff.pauses.cap_s * (1 - backoff.pauses.jitter)


@given(st.floats(0.001, 1e9))
def test_the_servers_advice_is_taken_within_bounds(advice: float) -> None:
    assert 0.02 <= Backoff(POLLING).next_pause(advice) <= 120


def test_reset_starts_over() -> None:
    backoff = Backoff(POLLING)
    for _ in range(20):
        backoff.next_pause()
    backoff.reset()
    assert backoff.next_pause() <= POLLING.first_s

"""However many passwords are tried at once, little is spent on them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from stoilo.core.errors import DeniedError
from stoilo.server.engines.embedded.accounts.passwords import Turns, hash_password


class Crowd:
    """Callers that hold their turns until they may go; counts those at work."""

    def __init__(self, turns: Turns, size: int) -> None:
        self.turns, self.go, self.lock = turns, threading.Event(), threading.Lock()
        self.working = self.most = 0
        self.pool = ThreadPoolExecutor(size)
        self.calls = [self.pool.submit(self.take) for _ in range(size)]

    def take(self) -> None:
        with self.turns:
            with self.lock:
                self.working += 1
                self.most = max(self.most, self.working)
            self.go.wait()
            with self.lock:
                self.working -= 1


def test_few_passwords_are_hashed_at_a_time_and_few_callers_wait(wait_until) -> None:
    crowd = Crowd(Turns(2, 3), 8)
    wait_until(lambda: sum(call.done() for call in crowd.calls) == 3)  # refused at once
    crowd.go.set()
    crowd.pool.shutdown()
    errors = [call.exception() for call in crowd.calls]
    assert [type(error) for error in errors if error] == [DeniedError] * 3
    assert crowd.most == 2


def test_turn_that_ended_is_free_again() -> None:
    turns = Turns(1, 0)
    for _ in range(3):
        with turns:
            pass
    with turns, pytest.raises(DeniedError, match="STO-E068"):
        hash_password("0" * 32, "salt", turns)
    assert hash_password("0" * 32, "salt", turns) == hash_password("0" * 32, "salt")

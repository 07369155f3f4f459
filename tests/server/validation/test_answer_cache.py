from __future__ import annotations

import pytest

from stoilo.server.validation.answers import Answer, AnswerCache

ANSWER = Answer((), "said")
MIB = 1024 * 1024


@pytest.mark.parametrize(("bound", "held"), [(64 * MIB, 64), (2**50, 120 * 16)])
def test_large_answers_are_held_up_to_a_bound_in_bytes(bound: int, held: int) -> None:
    memory = AnswerCache(bound)
    for number in range(120):
        memory.keep(f"r{number}", 16 * MIB, ANSWER)
    assert memory.held_bytes == held * MIB
    assert memory.find("r119") is ANSWER


def test_small_answers_are_held_up_to_a_number() -> None:
    memory = AnswerCache()
    for number in range(1000):
        memory.keep(f"r{number}", 10, ANSWER)
    assert memory.find("r0") is None
    assert memory.find("r999") is ANSWER
    assert memory.held_bytes == 256 * 10


def test_answer_over_the_bound_is_not_held_and_one_kept_twice_counts_once() -> None:
    memory = AnswerCache(100)
    memory.keep("a", 60, ANSWER)
    memory.keep("a", 60, ANSWER)
    assert memory.held_bytes == 60
    memory.keep("b", 101, ANSWER)
    assert memory.held_bytes == 0

import dataclasses
from collections.abc import Callable

import pytest

from stoilo.audit.format.misbehaviour import check_misbehaviour
from stoilo.audit.monitor.cross_check import witness_url
from stoilo.core.errors import UnreachableError
from tests.support.faulty_log import LogKey
from tests.support.memory_log import MemoryLogSource

from .conftest import Watcher

Fill = Callable[[int], Watcher]
PREFIX = "https://witness.test/w/"
URL = witness_url(PREFIX, "log.test/t")


@pytest.fixture
def asked(filled: Fill) -> Watcher:
    """Return a watcher of six leaves whose policy names a witness with its address."""
    watcher = filled(3)
    policy = LogKey("log.test/t", witness_time=5).policy
    witness = dataclasses.replace(policy.witnesses[0], url=PREFIX)
    watcher.policy = dataclasses.replace(policy, witnesses=(witness,), quorum="none")
    watcher.kinds()
    return watcher


def fork(size: int, origin: str = "log.test/t") -> bytes:
    other = MemoryLogSource(LogKey(origin))
    for number in range(size):
        other.admit(f"other{number}")
    return other.sign()


def test_address_is_that_of_the_standard() -> None:
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert witness_url("https://w.test/p", "abc") == (
        f"https://w.test/p/{digest}/checkpoint"
    )


@pytest.mark.parametrize("size", [1, 5, 6])
def test_witness_of_our_tree_is_fine(asked: Watcher, size: int) -> None:
    asked.pages[URL] = asked.log.sign(size)
    assert asked.kinds() == []


@pytest.mark.parametrize("size", [1, 5, 6])
def test_witness_of_another_tree_proves_the_fork(asked: Watcher, size: int) -> None:
    asked.pages[URL] = fork(size)
    (finding,) = asked.poll()
    shown = check_misbehaviour(finding.proof.encode(), asked.policy)
    assert (finding.code, shown.first.size) == ("STO-L120", size)


def test_larger_tree_is_waited_for_and_then_told_once(asked: Watcher) -> None:
    asked.pages[URL] = fork(9)
    assert asked.kinds() == []
    asked.now += 901
    assert [one.code for one in asked.poll()] == ["STO-L138"]
    assert asked.kinds() == []


def test_larger_tree_that_the_log_shows_in_time_is_fine(asked: Watcher) -> None:
    asked.log.explain(asked.log.admit("x"))
    asked.pages[URL] = asked.log.sign()
    assert asked.kinds() == []
    asked.log.publish()
    asked.now += 901
    assert asked.kinds() == []


@pytest.mark.parametrize("page", [b"", b"<html>", b"\xff" * 70_000, fork(3, "log.b/t")])
def test_rubbish_of_a_witness_is_not_the_log_s(asked: Watcher, page: bytes) -> None:
    asked.pages[URL] = page
    assert asked.kinds() == []


def test_witness_out_of_reach_says_nothing(asked: Watcher) -> None:
    assert asked.kinds() == []


def test_log_that_does_not_answer_does_not_silence_its_witnesses(
    asked: Watcher,
) -> None:
    def nothing() -> bytes | None:
        raise UnreachableError("STO-L002", "no answer")

    asked.log.checkpoint = nothing  # type: ignore[method-assign]
    asked.pages[URL] = fork(5)
    with pytest.raises(UnreachableError):
        asked.monitor().poll()
    assert [one.code for one in asked.findings()] == ["STO-L120"]

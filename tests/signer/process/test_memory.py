from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.audit.format.merkle import (
    EMPTY_ROOT,
    Checkpoint,
    consistency_proof,
    leaf_hash,
    range_root,
)
from stoilo.core.errors import TrustError
from stoilo.signer.process.memory import CheckpointLedger, create_ledger, judge_next
from tests.support.memory_tree import MemoryTree

ORIGIN = "log.example/t"
TREE = MemoryTree(leaf_hash(bytes([n])) for n in range(40))
FORK = MemoryTree(leaf_hash(bytes([n // 2])) for n in range(40))


def at(size: int, tree: MemoryTree = TREE, origin: str = ORIGIN) -> Checkpoint:
    root = range_root(0, size, tree.node) if size else EMPTY_ROOT
    return Checkpoint(origin, size, root)


def code_of(last: Checkpoint, asked: Checkpoint, proof: list[bytes]) -> str:
    with pytest.raises(TrustError) as caught:
        judge_next(last, asked, proof)
    return caught.value.code


@given(st.integers(0, 40), st.integers(0, 40))
def test_a_larger_consistent_tree_is_next_and_a_smaller_never(
    old: int, new: int
) -> None:
    if new < old:
        assert code_of(at(old), at(new), []) == "STO-K026"
    else:
        judge_next(at(old), at(new), consistency_proof(old, new, TREE.node))


@given(st.integers(3, 39))
def test_another_tree_of_one_size_is_a_fork(size: int) -> None:
    assert code_of(at(size), at(size, FORK), []) == "STO-K026"


@given(st.integers(3, 39))
def test_larger_tree_that_does_not_extend_the_last_is_a_fork(size: int) -> None:
    proof = consistency_proof(size, 40, FORK.node)
    assert code_of(at(size), at(40, FORK), proof) == "STO-K026"
    assert code_of(at(size), at(40, FORK), []) == "STO-K026"


def test_another_log_is_refused() -> None:
    assert code_of(at(1), at(2, origin="elsewhere"), []) == "STO-K026"


def test_memory_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.json"
    create_ledger(path, ORIGIN)
    CheckpointLedger(path).record(at(9))
    create_ledger(path, ORIGIN)
    assert CheckpointLedger(path).last == at(9)


def test_refused_checkpoint_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.json"
    create_ledger(path, ORIGIN)
    ledger = CheckpointLedger(path)
    ledger.record(at(9))
    with pytest.raises(TrustError):
        ledger.record(at(8))
    assert CheckpointLedger(path).last == at(9)


@pytest.mark.parametrize("text", [None, b"", b"{}", b'{"origin":"x","size":1}'])
def test_lost_or_damaged_memory_stops_the_signer(
    tmp_path: Path, text: bytes | None
) -> None:
    path = tmp_path / "checkpoint.json"
    if text is not None:
        path.write_bytes(text)
        path.chmod(0o600)
    with pytest.raises(TrustError, match="STO-K029"):
        CheckpointLedger(path)


def test_memory_that_others_could_change_stops_the_signer(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.json"
    create_ledger(path, ORIGIN)
    path.chmod(0o666)
    with pytest.raises(TrustError, match="STO-K029"):
        CheckpointLedger(path)

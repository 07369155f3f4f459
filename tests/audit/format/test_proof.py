import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.audit.format.merkle import (
    Checkpoint,
    inclusion_proof,
    leaf_hash,
    range_root,
    render_checkpoint,
)
from stoilo.audit.format.proof import Proof, check_proof, parse_proof, render_proof
from stoilo.core.errors import TrustError
from tests.support.faulty_log import LogKey
from tests.support.memory_tree import MemoryTree

KEY = LogKey("log.test/t")
SIZE = 77
LEAVES = [b"leaf %d" % number for number in range(SIZE)]
TREE = MemoryTree(leaf_hash(leaf) for leaf in LEAVES)


def checkpoint_of(size: int, root_size: int | None = None) -> bytes:
    tree_root = range_root(0, root_size or size, TREE.node)
    return KEY.sign(render_checkpoint(Checkpoint(KEY.origin, size, tree_root)))


def proof_of(index: int, size: int = SIZE, extra: bytes = b"") -> bytes:
    path = inclusion_proof(index, size, TREE.node)
    return render_proof(Proof(index, tuple(path), checkpoint_of(size), extra))


@given(st.integers(1, SIZE), st.data())
def test_true_proof_is_accepted(size: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, size - 1))
    proven = check_proof(proof_of(index, size), LEAVES[index], KEY.policy)
    assert (proven.index, proven.size, proven.checkpoint_time) == (index, size, None)
    assert proven.root == range_root(0, size, TREE.node)


@given(st.integers(0, SIZE - 1), st.data())
def test_any_changed_byte_is_refused(index: int, data: st.DataObject) -> None:
    proof = bytearray(proof_of(index))
    place = data.draw(st.integers(0, len(proof) - 1))
    proof[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(TrustError):
        check_proof(bytes(proof), LEAVES[index], KEY.policy)


@given(st.integers(0, SIZE - 1), st.integers(0, SIZE - 1))
def test_proof_of_another_leaf_is_refused(index: int, other: int) -> None:
    if index != other:
        with pytest.raises(TrustError, match="STO-L020"):
            check_proof(proof_of(index), LEAVES[other], KEY.policy)


def test_proof_with_another_checkpoint_is_refused() -> None:
    path = inclusion_proof(5, 60, TREE.node)
    proof = render_proof(Proof(5, tuple(path), checkpoint_of(SIZE)))
    with pytest.raises(TrustError, match="STO-L020"):
        check_proof(proof, LEAVES[5], KEY.policy)


def test_size_plus_one_needs_a_signature_that_the_log_never_gives() -> None:
    """The trap of bare proofs is closed: size and root come out of one signed note."""
    path = tuple(inclusion_proof(5, SIZE, TREE.node))
    lie = checkpoint_of(SIZE + 1, root_size=SIZE)
    check_proof(
        render_proof(Proof(5, path, lie)), LEAVES[5], KEY.policy
    )  # if it signed
    body, signatures = checkpoint_of(SIZE).split(b"\n\n")
    forged = body.replace(b"\n77\n", b"\n78\n") + b"\n\n" + signatures
    with pytest.raises(TrustError, match="STO-L012"):
        check_proof(render_proof(Proof(5, path, forged)), LEAVES[5], KEY.policy)


def test_extra_data_is_carried_and_not_believed() -> None:
    proof = proof_of(3, extra=b"anything")
    assert parse_proof(proof).extra == b"anything"
    assert check_proof(proof, LEAVES[3], KEY.policy).index == 3


def test_proof_of_another_log_is_refused() -> None:
    with pytest.raises(TrustError, match="STO-L011"):
        check_proof(proof_of(1), LEAVES[1], LogKey("log.test/t", b"\4" * 32).policy)


GOOD = proof_of(40)


@pytest.mark.parametrize(
    "proof",
    [
        b"",
        GOOD.replace(b"@v1", b"@v2"),
        GOOD.replace(b"index 40\n", b""),
        GOOD.replace(b"index 40", b"index 040"),
        GOOD.replace(b"index 40", b"index -1"),
        GOOD.replace(b"index 40\n", b"index 40\nAAAA\n"),
        GOOD.replace(b"index 40\n", b"extra !\nindex 40\n"),
        GOOD.replace(b"index 40\n", b"index 40\n" + (b"A" * 43 + b"=\n") * 64),
        GOOD.replace(b"\n\n", b"\n"),
        GOOD.replace(b"c2sp", "\u04412sp".encode()),
        GOOD + b"x" * 20_000,
    ],
)
def test_malformed_proof_is_refused(proof: bytes) -> None:
    with pytest.raises(TrustError, match=r"STO-L0(22|1)"):
        check_proof(proof, LEAVES[40], KEY.policy)


@given(st.binary(max_size=200) | st.binary(max_size=60).map(lambda tail: GOOD + tail))
def test_any_bytes_parse_or_raise_trust_error(data: bytes) -> None:
    try:
        proof = parse_proof(data)
    except TrustError:
        return
    assert render_proof(proof) == data or proof.extra == b""

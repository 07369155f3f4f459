import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.audit.format.facts import NamedDigest, PolicyRecord, ReleaseRecord
from stoilo.audit.format.merkle import (
    Checkpoint,
    inclusion_proof,
    leaf_hash,
    range_root,
    render_checkpoint,
)
from stoilo.audit.format.proof import Proof, render_proof
from stoilo.audit.format.records import (
    check_release_proof,
    record_leaf,
    render_record,
    render_release_proof,
)
from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError
from tests.support.faulty_log import LogKey
from tests.support.memory_tree import MemoryTree

ORIGIN, NOW = "log.test/t", 1_800_000_000
KEY = LogKey(ORIGIN)
RELEASE = ReleaseRecord(
    ORIGIN, NOW, 1, 2, (NamedDigest("1.root.json", content_digest(b"root")),)
)
RECORD = render_record(RELEASE)
POLICY = render_record(PolicyRecord(ORIGIN, NOW, "in_force", content_digest(b"p")))
LEAVES = [record_leaf(POLICY, "1"), record_leaf(RECORD, "1"), b"another"]
TREE = MemoryTree(leaf_hash(leaf) for leaf in LEAVES)


def proof_of(index: int) -> bytes:
    size = len(LEAVES)
    body = render_checkpoint(Checkpoint(ORIGIN, size, range_root(0, size, TREE.node)))
    path = tuple(inclusion_proof(index, size, TREE.node))
    plain = render_proof(Proof(index, path, KEY.sign(body)))
    return render_release_proof(plain, LEAVES[index])


PROOF = proof_of(1)


def test_record_of_a_logged_release_is_proven() -> None:
    found = check_release_proof(RECORD, PROOF, KEY.policy)
    assert (found.record, found.proven.index) == (RELEASE, 1)


def test_proof_of_another_record_is_refused() -> None:
    with pytest.raises(TrustError, match="STO-L141"):
        check_release_proof(POLICY, PROOF, KEY.policy)


def test_record_of_another_kind_is_no_release() -> None:
    with pytest.raises(TrustError, match="STO-L141"):
        check_release_proof(POLICY, proof_of(0), KEY.policy)


def test_leaf_that_the_log_does_not_hold_is_refused() -> None:
    forged = render_record(ReleaseRecord(ORIGIN, NOW, 9, 9, RELEASE.metadata))
    proof = render_release_proof(PROOF, record_leaf(forged, "1"))
    with pytest.raises(TrustError, match="STO-L020"):
        check_release_proof(forged, proof, KEY.policy)


@given(st.sampled_from([0, 1]), st.data())
def test_any_changed_byte_is_refused(which: int, data: st.DataObject) -> None:
    files = [bytearray(RECORD), bytearray(PROOF)]
    place = data.draw(st.integers(0, len(files[which]) - 1))
    files[which][place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(TrustError):
        check_release_proof(bytes(files[0]), bytes(files[1]), KEY.policy)


@given(st.binary(max_size=400), st.binary(max_size=400))
def test_any_bytes_end_in_our_error(record: bytes, proof: bytes) -> None:
    with pytest.raises(TrustError):
        check_release_proof(record, proof, KEY.policy)

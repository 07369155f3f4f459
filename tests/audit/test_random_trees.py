"""Thousands of random trees and proofs: every true one holds, every changed one falls."""

import random

import pytest

from stoilo.audit.format.merkle import (
    Checkpoint,
    check_consistency,
    check_inclusion,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    range_root,
    render_checkpoint,
)
from stoilo.audit.format.note import Note, cosign_note, parse_note, render_note
from stoilo.audit.format.policy import LogPolicy, Witness
from stoilo.audit.format.proof import Proof, check_proof, render_proof
from stoilo.core.errors import TrustError
from tests.support.faulty_log import LogKey
from tests.support.memory_tree import MemoryTree
from tests.support.notekeys import KeyType, NoteKey

ROUNDS = 3000
LEAVES = 5000


@pytest.fixture(scope="module")
def tree() -> MemoryTree:
    chooser = random.Random(6962)
    return MemoryTree(leaf_hash(chooser.randbytes(20)) for _ in range(LEAVES))


def size_of(chooser: random.Random) -> int:
    """Small trees, any trees, and those at powers of two and tile boundaries."""
    edge = chooser.choice([1, 2, 64, 255, 256, 257, 1024, 4096]) + chooser.randint(
        -1, 1
    )
    return chooser.choice(
        [chooser.randint(1, 40), chooser.randint(1, LEAVES), max(edge, 1)]
    )


def head(tree: MemoryTree, size: int) -> Checkpoint:
    return Checkpoint("log.test/t", size, range_root(0, size, tree.node))


def flip(chooser: random.Random, data: bytes) -> bytes:
    bit = chooser.randrange(len(data) * 8)
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def mutations(chooser: random.Random, path: list[bytes]) -> list[list[bytes]]:
    """Each step flipped, dropped, doubled, swapped with the next; ends lengthened."""
    found = [[bytes(32), *path], [*path, bytes(32)]]
    for at, step in enumerate(path):
        found.append([*path[:at], flip(chooser, step), *path[at + 1 :]])
        found.append([*path[:at], *path[at + 1 :]])
        found.append([*path[:at], step, *path[at:]])
        if at:
            found.append([*path[: at - 1], step, path[at - 1], *path[at + 1 :]])
    return found


def test_inclusion_holds_exactly_for_true_proofs(tree: MemoryTree) -> None:
    chooser = random.Random(1)
    for _ in range(ROUNDS):
        size = size_of(chooser)
        index = chooser.randrange(size)
        leaf, known = tree.node(0, index), head(tree, size)
        path = inclusion_proof(index, size, tree.node)
        check_inclusion(leaf, index, path, known)
        wrong = [(leaf, index, one) for one in mutations(chooser, path)]
        wrong += [(leaf, index ^ 1 << bit, path) for bit in range(size.bit_length())]
        wrong += [(flip(chooser, leaf), index, path), (leaf, -1, path)]
        for claim in chooser.sample(wrong, min(len(wrong), 8)):
            with pytest.raises(TrustError, match="STO-L020"):
                check_inclusion(*claim, known)


def test_consistency_holds_exactly_for_true_proofs(tree: MemoryTree) -> None:
    chooser = random.Random(2)
    for _ in range(ROUNDS):
        old, new = sorted((size_of(chooser), size_of(chooser)))
        small, large = head(tree, old), head(tree, new)
        path = consistency_proof(old, new, tree.node)
        check_consistency(small, large, path)
        wrong = [(small, large, one) for one in mutations(chooser, path)]
        wrong += [(small, _other_root(chooser, large), path)] if old < new else []
        wrong += [(_other_root(chooser, small), large, path)]
        for claim in chooser.sample(wrong, min(len(wrong), 8)):
            with pytest.raises(TrustError, match="STO-L020"):
                check_consistency(*claim)


def _other_root(chooser: random.Random, known: Checkpoint) -> Checkpoint:
    return Checkpoint(known.origin, known.size, flip(chooser, known.root))


LOG = LogKey("log.test/t")
WITNESSES = (
    NoteKey.from_seed("w1.test", KeyType.COSIGNATURE, b"\1" * 32),
    NoteKey.from_seed("w2.test", KeyType.ML_DSA_44, b"\2" * 32),
)


def signed_proof(
    witness: NoteKey, extra: bytes = b""
) -> tuple[bytes, bytes, LogPolicy]:
    """A proof, its leaf and the policy that demands the log's and a witness's word."""
    leaves = [b"leaf %d" % number for number in range(21)]
    tree = MemoryTree(map(leaf_hash, leaves))
    body = render_checkpoint(head(tree, 21))
    signature = parse_note(LOG.sign(body)).signatures[0]
    cosigned = cosign_note(body, witness.vkey.name, witness.private, 1_800_000_000)
    note = render_note(Note(body, (signature, cosigned)))
    path = tuple(inclusion_proof(13, 21, tree.node))
    policy = LogPolicy(LOG.policy.logs, (Witness("w", witness.vkey),), (), "w")
    return render_proof(Proof(13, path, note, extra)), leaves[13], policy


def test_every_flipped_bit_of_a_proof_is_refused() -> None:
    proof, leaf, policy = signed_proof(WITNESSES[0])
    assert check_proof(proof, leaf, policy).index == 13
    for place in range(len(proof)):
        for bit in range(8):
            changed = bytearray(proof)
            changed[place] ^= 1 << bit
            with pytest.raises(TrustError):
                check_proof(bytes(changed), leaf, policy)


def test_flipped_bits_of_a_proof_with_ml_dsa_are_refused() -> None:
    proof, leaf, policy = signed_proof(WITNESSES[1])
    assert check_proof(proof, leaf, policy).index == 13
    chooser = random.Random(3)
    for _ in range(1500):
        with pytest.raises(TrustError):
            check_proof(flip(chooser, proof), leaf, policy)


def test_every_cut_proof_is_refused() -> None:
    proof, leaf, policy = signed_proof(WITNESSES[0])
    for end in range(len(proof)):
        with pytest.raises(TrustError):
            check_proof(proof[:end], leaf, policy)

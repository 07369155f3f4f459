import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.audit.checkpoint import Checkpoint
from stoilo.audit.merkle import MemoryTree, consistency_proof, leaf_hash, range_root
from stoilo.audit.subtrees import (
    check_subtree,
    check_subtree_inclusion,
    is_subtree,
    subtree_inclusion_proof,
    subtree_proof,
    subtree_root,
)
from stoilo.core.errors import TrustError

TREE = MemoryTree(leaf_hash(bytes([number])) for number in range(130))
RANGES = [
    (start, end)
    for end in range(131)
    for start in range(end + 1)
    if is_subtree(start, end)
]


def head(size: int) -> Checkpoint:
    return Checkpoint("log.test/t", size, range_root(0, size, TREE.node))


def digest(lines: list[str]) -> str:
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def text(path: list[bytes]) -> str:
    return "".join(f" {step.hex()}" for step in path)


# The digests are published with transparency-dev/merkle (testonly/vectors_test.go).


def test_subtree_hashes_match_the_published_digest() -> None:
    lines = [
        f"[{start}, {end}) {subtree_root(start, end, TREE.node).hex()}"
        for start, end in RANGES
    ]
    assert digest(lines) == (
        "b82806ad4265bb151c1119c0f4db437bb4d1a1f887b3a7fba1cd4ebf552e3e81"
    )


def test_subtree_inclusion_matches_the_published_digest() -> None:
    lines = [
        f"{index} [{start}, {end})"
        f"{text(subtree_inclusion_proof(index, start, end, TREE.node))}"
        for start, end in RANGES
        for index in range(start, end)
    ]
    assert digest(lines) == (
        "ac2a8f989e44d99e399db448050ff5f19757df53cfb716aa81015d3955d8163f"
    )


def test_subtree_consistency_matches_the_published_digest() -> None:
    lines = [
        f"[{start}, {end}) {size}{text(subtree_proof(start, end, size, TREE.node))}"
        for size in range(131)
        for start, end in RANGES
        if end <= size
    ]
    assert digest(lines) == (
        "10fa99b37bf9bf9ffa26b412fbd98bd75363256d0b75d61bc4538b9c9c5a0a74"
    )


def test_subtree_from_the_beginning_is_a_consistency_proof() -> None:
    for size in range(1, 131):
        for end in range(1, size + 1):
            path = subtree_proof(0, end, size, TREE.node)
            assert path == consistency_proof(end, size, TREE.node)


@st.composite
def claims(draw: st.DrawFn) -> tuple[int, int, int]:
    """A non-empty subtree (start, end) and a tree that holds it."""
    start, end = draw(st.sampled_from([one for one in RANGES if one[0] < one[1]]))
    return start, end, draw(st.integers(end, 130))


@given(claims())
def test_true_subtree_is_accepted(claim: tuple[int, int, int]) -> None:
    start, end, size = claim
    root = subtree_root(start, end, TREE.node)
    path = subtree_proof(start, end, size, TREE.node)
    check_subtree((start, end, root), head(size), path)


@given(claims(), st.data())
def test_changed_subtree_proof_is_refused(
    claim: tuple[int, int, int], data: st.DataObject
) -> None:
    start, end, size = claim
    root = subtree_root(start, end, TREE.node)
    path = subtree_proof(start, end, size, TREE.node)
    place = data.draw(st.integers(0, len(path)))
    flipped = bytes([root[0] ^ 1]) + root[1:]
    wrong: list[tuple[bytes, list[bytes]]] = [
        (flipped, path),
        (root, [*path[:place], bytes(32), *path[place:]]),
    ]
    if place < len(path):
        wrong += [
            (root, [*path[:place], *path[place + 1 :]]),
            (root, [*path[:place], bytes(32), *path[place + 1 :]]),
        ]
    for claimed, steps in wrong:
        with pytest.raises(TrustError, match="STO-L021"):
            check_subtree((start, end, claimed), head(size), steps)


@given(claims(), st.data())
def test_leaf_of_a_subtree_is_proven_and_no_other(
    claim: tuple[int, int, int], data: st.DataObject
) -> None:
    start, end, _ = claim
    index = data.draw(st.integers(start, end - 1))
    subtree = (start, end, subtree_root(start, end, TREE.node))
    path = subtree_inclusion_proof(index, start, end, TREE.node)
    check_subtree_inclusion(TREE.node(0, index), index, subtree, path)
    for other in {start - 1, end, index - 1, index + 1} - {index}:
        with pytest.raises(TrustError, match="STO-L020"):
            check_subtree_inclusion(TREE.node(0, index), other, subtree, path)


@pytest.mark.parametrize(
    ("start", "end", "size"), [(1, 3, 8), (4, 9, 16), (2, 1, 8), (-1, 0, 8), (8, 16, 9)]
)
def test_other_range_is_no_subtree(start: int, end: int, size: int) -> None:
    with pytest.raises(TrustError, match="STO-L023"):
        subtree_proof(start, end, size, TREE.node)
    with pytest.raises(TrustError, match="STO-L021"):
        check_subtree((start, end, bytes(32)), head(size), [])

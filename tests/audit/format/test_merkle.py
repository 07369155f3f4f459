import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.audit.format.merkle import (
    Checkpoint,
    Frontier,
    check_consistency,
    check_inclusion,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    node_hash,
    perfect_roots,
    range_root,
    root,
)
from stoilo.core.errors import TrustError
from tests.support.memory_tree import MemoryTree

# RFC 6962 vectors as published by transparency-dev/merkle (testonly/constants.go).
LEAVES = [
    b"",
    b"\0",
    b"\x10",
    b"\x20\x21",
    b"\x30\x31",
    b"\x40\x41\x42\x43",
    bytes(range(0x50, 0x58)),
    bytes(range(0x60, 0x70)),
]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
STEPS = {
    "bc1a": "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    "ca85": "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
    "0ebc": "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
    "6b47": "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    "5f08": "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
}


def eight_leaves() -> MemoryTree:
    return MemoryTree(leaf_hash(data) for data in LEAVES)


def rolling_tree(size: int = 130) -> MemoryTree:
    return MemoryTree(leaf_hash(bytes([number])) for number in range(size))


def head(tree: MemoryTree, size: int | None = None) -> Checkpoint:
    size = tree.size if size is None else size
    return Checkpoint("log.test/t", size, range_root(0, size, tree.node))


def hex_list(steps: list[bytes]) -> list[str]:
    return [step.hex() for step in steps]


def test_published_hashes_hold() -> None:
    assert leaf_hash(b"").hex() == ROOTS[1]
    assert leaf_hash(b"L123456").hex() == (
        "395aa064aa4c29f7010acfe3f25db9485bbd4b91897b6ad7ad547639252b4d56"
    )
    assert node_hash(b"N123", b"N456").hex() == (
        "aa217fe888e47007fa15edab33c2b492a722cb106c64667fc2b044444de66bbb"
    )


@pytest.mark.parametrize("size", range(9))
def test_published_roots_hold_in_every_way_of_computing(size: int) -> None:
    hashes = [leaf_hash(data) for data in LEAVES[:size]]
    assert root(hashes).hex() == ROOTS[size]
    assert Frontier().extend(hashes).root().hex() == ROOTS[size]
    assert range_root(0, size, eight_leaves().node).hex() == ROOTS[size]


@pytest.mark.parametrize(
    ("index", "size", "steps"),
    [
        (5, 8, [STEPS["bc1a"], STEPS["ca85"], ROOTS[4]]),
        (2, 3, [ROOTS[2]]),
    ],
)
def test_published_inclusion_proofs_hold(
    index: int, size: int, steps: list[str]
) -> None:
    path = inclusion_proof(index, size, eight_leaves().node)
    assert hex_list(path) == steps
    known = Checkpoint("log.test/t", size, bytes.fromhex(ROOTS[size]))
    check_inclusion(leaf_hash(LEAVES[index]), index, path, known)


@pytest.mark.parametrize(
    ("old", "new", "steps"),
    [
        (6, 8, [STEPS["0ebc"], STEPS["ca85"], ROOTS[4]]),
        (4, 8, [STEPS["6b47"]]),
        (2, 5, [STEPS["5f08"], STEPS["bc1a"]]),
        (7, 7, []),
    ],
)
def test_published_consistency_proofs_hold(
    old: int, new: int, steps: list[str]
) -> None:
    path = consistency_proof(old, new, eight_leaves().node)
    assert hex_list(path) == steps
    known = [Checkpoint("log", size, bytes.fromhex(ROOTS[size])) for size in (old, new)]
    check_consistency(known[0], known[1], path)


def test_rolling_roots_match_their_digest() -> None:
    tree, state = rolling_tree(), hashlib.sha256()
    for size in range(1, 131):
        value = range_root(0, size, tree.node)
        state.update(f"{size} {value.hex()}\n".encode())
    assert state.hexdigest() == (
        "d35ccec0cee406fa63d1597891bb2d66df747b4e8817cd6e010a2d58fffb1fcb"
    )


def test_rolling_consistency_matches_its_digest() -> None:
    tree, state = rolling_tree(), hashlib.sha256()
    for new in range(1, 131):
        for old in range(1, new + 1):
            path = consistency_proof(old, new, tree.node)
            steps = "".join(f" {step.hex()}" for step in path)
            state.update(f"{old} {new}{steps}\n".encode())
    assert state.hexdigest() == (
        "2498232e1aebe8d1aa8d339d897fc471f4495fe0b8a55ac08f7dae3d88bc4c2a"
    )


@st.composite
def tree_and_leaf(draw: st.DrawFn) -> tuple[MemoryTree, int]:
    tree = rolling_tree(draw(st.integers(1, 200)))
    return tree, draw(st.integers(0, tree.size - 1))


@given(tree_and_leaf())
def test_true_inclusion_proof_is_accepted(case: tuple[MemoryTree, int]) -> None:
    tree, index = case
    path = inclusion_proof(index, tree.size, tree.node)
    check_inclusion(tree.node(0, index), index, path, head(tree))


def mutate_path(data: st.DataObject, path: list[bytes]) -> list[bytes]:
    """Return a path that differs: longer, shorter, a flipped bit, two steps swapped."""
    changed = list(path)
    how = data.draw(st.sampled_from(["longer", "shorter", "flip", "swap"]))
    if how == "longer" or not path:
        changed.insert(data.draw(st.integers(0, len(path))), bytes(32))
        return changed
    place = data.draw(st.integers(0, len(path) - 1))
    if how == "shorter":
        del changed[place]
    elif how == "swap" and len(path) > 1:
        changed[place], changed[place - 1] = changed[place - 1], changed[place]
    else:
        bit = data.draw(st.integers(0, 255))
        flipped = int.from_bytes(changed[place], "big") ^ (1 << bit)
        changed[place] = flipped.to_bytes(32, "big")
    return changed


@given(tree_and_leaf(), st.data())
def test_changed_inclusion_proof_is_refused(
    case: tuple[MemoryTree, int], data: st.DataObject
) -> None:
    tree, index = case
    path = mutate_path(data, inclusion_proof(index, tree.size, tree.node))
    with pytest.raises(TrustError, match="STO-L020"):
        check_inclusion(tree.node(0, index), index, path, head(tree))


@given(tree_and_leaf(), st.data())
def test_inclusion_at_another_index_is_refused(
    case: tuple[MemoryTree, int], data: st.DataObject
) -> None:
    tree, index = case
    other = data.draw(st.integers(-1, tree.size).filter(lambda n: n != index))
    path = inclusion_proof(index, tree.size, tree.node)
    with pytest.raises(TrustError, match="STO-L020"):
        check_inclusion(tree.node(0, index), other, path, head(tree))


@given(st.integers(0, 200), st.integers(0, 200))
def test_true_consistency_proof_is_accepted(first: int, second: int) -> None:
    old, new = sorted((first, second))
    tree = rolling_tree(new)
    path = consistency_proof(old, new, tree.node)
    check_consistency(head(tree, old), head(tree, new), path)


@given(st.integers(1, 200), st.integers(1, 200), st.data())
def test_changed_consistency_proof_is_refused(
    first: int, second: int, data: st.DataObject
) -> None:
    old, new = sorted((first, second))
    tree = rolling_tree(new)
    path = mutate_path(data, consistency_proof(old, new, tree.node))
    with pytest.raises(TrustError, match="STO-L020"):
        check_consistency(head(tree, old), head(tree, new), path)


@given(st.integers(1, 100), st.integers(2, 100), st.data())
def test_fork_is_never_consistent(old: int, grown: int, data: st.DataObject) -> None:
    forked = rolling_tree(old - 1)
    for _ in range(grown):
        forked.append(leaf_hash(b"another history"))
    path = consistency_proof(old, forked.size, forked.node)
    if data.draw(st.booleans()):
        path = mutate_path(data, path)
    with pytest.raises(TrustError, match="STO-L020"):
        check_consistency(head(rolling_tree(old)), head(forked), path)


def test_shrinking_log_is_refused() -> None:
    with pytest.raises(TrustError, match="shrank"):
        check_consistency(head(rolling_tree(2)), head(rolling_tree(1)), [])


def test_checkpoints_of_two_logs_are_never_consistent() -> None:
    one = head(rolling_tree(4))
    with pytest.raises(TrustError, match="different logs"):
        check_consistency(one, Checkpoint("other.test/t", one.size, one.root), [])


def test_bare_proof_accepts_size_plus_one_which_is_why_checkpoints_carry_sizes() -> (
    None
):
    """The trap: RFC 9162's algorithm takes a wrong size with the true root."""
    accepted = total = 0
    for size in range(1, 60):
        tree = rolling_tree(size)
        lie = Checkpoint("log.test/t", size + 1, range_root(0, size, tree.node))
        for index in range(size):
            path = inclusion_proof(index, size, tree.node)
            total += 1
            try:
                check_inclusion(tree.node(0, index), index, path, lie)
                accepted += 1
            except TrustError:
                pass
    assert (accepted, total) == (1586, 1770)


def test_missing_leaf_has_no_proof() -> None:
    with pytest.raises(TrustError, match="STO-L023"):
        inclusion_proof(8, 8, eight_leaves().node)
    with pytest.raises(TrustError, match="STO-L023"):
        consistency_proof(9, 8, eight_leaves().node)


@given(st.lists(st.integers(0, 40), max_size=6))
def test_frontier_of_any_steps_is_the_one_of_the_whole_tree(
    steps: list[int],
) -> None:
    hashes = [leaf_hash(b"%d" % number) for number in range(sum(steps))]
    frontier, start = Frontier(), 0
    for step in steps:
        frontier = frontier.extend(hashes[start : start + step])
        start += step
    assert frontier == Frontier(len(hashes), tuple(perfect_roots(hashes)))


@pytest.mark.parametrize("size", [4095, 4096, 4097, 8193])
def test_frontier_of_more_than_is_joined_at_once_is_the_same(size: int) -> None:
    hashes = [leaf_hash(b"%d" % number) for number in range(size)]
    assert Frontier().extend(iter(hashes)).root() == root(hashes)

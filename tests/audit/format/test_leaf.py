import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.audit.format.merkle import inclusion_proof, leaf_hash, replay_inclusion
from stoilo.audit.format.proof import Leaf, LeafKind, parse_leaf, render_leaf
from stoilo.audit.format.records import refusals_root
from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError
from tests.support.memory_tree import MemoryTree

DIGEST = content_digest(b"statement")
PLAIN = [kind for kind in LeafKind if kind is not LeafKind.REFUSALS]
GOOD = render_leaf(Leaf(LeafKind.ADMISSION, DIGEST, "7", 1_700_000_000))


def test_leaf_is_five_lines() -> None:
    text = f"stoilo-entry/v1\nadmission\n{DIGEST}\n7\n1700000000\n"
    assert text.encode() == GOOD


@given(st.sampled_from(PLAIN), st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True),
       st.integers(0, 2**62))  # fmt: skip
def test_leaf_is_read_back(kind: LeafKind, epoch: str, time: int) -> None:
    leaf = Leaf(kind, DIGEST, epoch, time)
    assert parse_leaf(render_leaf(leaf)) == leaf


def test_refusals_leaf_shows_how_many_and_proves_each() -> None:
    refused = [content_digest(b"%d" % number) for number in range(5)]
    root = refusals_root(refused)
    written = Leaf(LeafKind.REFUSALS, DIGEST, "7", 201, 5, root)
    assert parse_leaf(render_leaf(written)) == written
    tree = MemoryTree(leaf_hash(bytes.fromhex(one)) for one in refused)
    path = inclusion_proof(3, 5, tree.node)
    own = leaf_hash(bytes.fromhex(refused[3]))
    assert replay_inclusion(own, 3, 5, path).hex() == root


@pytest.mark.parametrize(
    "data",
    [
        b"",
        GOOD[:-1],
        GOOD + b"\n",
        GOOD + b"5\n",
        GOOD.replace(b"v1", b"v2"),
        GOOD.replace(b"admission", b"party"),
        GOOD.replace(b"admission", b"refusals"),
        GOOD.replace(b"\n7\n", b"\n-7\n"),
        GOOD.replace(b"1700000000", b"01700000000"),
        GOOD.replace(b"\n7\n", b"\n\xc3\xa9\n"),
        GOOD * 5000,
    ],
)
def test_malformed_leaf_is_refused(data: bytes) -> None:
    with pytest.raises(TrustError, match="STO-L010"):
        parse_leaf(data)


@pytest.mark.parametrize(
    "leaf",
    [
        Leaf(LeafKind.KEY, DIGEST, "", 1),
        Leaf(LeafKind.KEY, DIGEST, "a\nb", 1),
        Leaf(LeafKind.KEY, DIGEST, "7", -1),
        Leaf(LeafKind.KEY, DIGEST, "7", 1, count=3, root=DIGEST),
        Leaf(LeafKind.REFUSALS, DIGEST, "7", 1),
    ],
)
def test_unwritable_leaf_is_refused(leaf: Leaf) -> None:
    with pytest.raises(TrustError, match="STO-L010"):
        render_leaf(leaf)


@given(st.binary(max_size=200))
def test_any_bytes_parse_or_raise_trust_error(data: bytes) -> None:
    try:
        assert render_leaf(parse_leaf(data)) == data
    except TrustError:
        pass

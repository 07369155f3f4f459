import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.audit.format.merkle import (
    Checkpoint,
    leaf_hash,
    range_root,
    render_checkpoint,
)
from stoilo.audit.format.misbehaviour import (
    check_misbehaviour,
    disclose,
    render_misbehaviour,
)
from stoilo.core.errors import TrustError
from tests.support.faulty_log import LogKey
from tests.support.memory_tree import MemoryTree

KEY = LogKey("log.test/t")
WITNESSED = LogKey("log.test/t", witness_time=1_700_000_000)


def tree(size: int, changed: int = -1) -> MemoryTree:
    """Return a tree whose leaf `changed` is not what it should be."""
    leaves = [b"%d" % n + b"!" * (n == changed) for n in range(size)]
    return MemoryTree(map(leaf_hash, leaves))


def note(size: int, source: MemoryTree, key: LogKey = KEY) -> bytes:
    root = range_root(0, size, source.node)
    return key.sign(render_checkpoint(Checkpoint(key.origin, size, root)))


def proof(first: int, second: int, changed: int, key: LogKey = KEY) -> bytes:
    """Return a proof of a log that changed a leaf between two checkpoints."""
    honest, forged = tree(first), tree(second, changed)
    old, new = note(first, honest, key), note(second, forged, key)
    notes = (old, new) if first == second else (new, old)
    return render_misbehaviour(*notes, forged.node)


@given(st.integers(1, 70), st.integers(0, 70), st.data())
def test_any_changed_leaf_is_proven(first: int, more: int, data: st.DataObject) -> None:
    changed = data.draw(st.integers(0, first - 1))
    shown = check_misbehaviour(proof(first, first + more, changed), KEY.policy)
    assert (shown.first.size, shown.second.size) == (first, first + more)
    assert shown.root == range_root(0, first, tree(first, changed).node)


@given(st.integers(1, 70), st.integers(0, 70))
def test_a_log_that_only_grew_is_never_accused(first: int, more: int) -> None:
    honest = tree(first + more)
    made = render_misbehaviour(
        note(first, honest), note(first + more, honest), honest.node
    )
    with pytest.raises(TrustError, match="STO-L020"):
        check_misbehaviour(made, KEY.policy)


@given(st.integers(1, 40), st.integers(1, 40), st.data())
def test_no_path_turns_an_honest_log_into_a_forger(
    first: int, more: int, data: st.DataObject
) -> None:
    honest = tree(first + more)
    path = disclose(first, first + more, honest.node)
    place = data.draw(st.integers(0, len(path) - 1))
    bent = bytearray(path[place])
    bent[data.draw(st.integers(0, 31))] ^= data.draw(st.integers(1, 255))
    made = render_misbehaviour(
        note(first, honest), note(first + more, honest), honest.node
    )
    lines = made.split(b"\n")
    at = [n for n, line in enumerate(lines) if line.startswith(b"path ")][place]
    lines[at] = b"path " + base64.b64encode(bytes(bent))
    with pytest.raises(TrustError, match="STO-L020"):
        check_misbehaviour(b"\n".join(lines), KEY.policy)


def test_proof_needs_the_log_s_own_key() -> None:
    other = LogKey(KEY.origin, b"\x08" * 32)
    with pytest.raises(TrustError, match="STO-L011"):
        check_misbehaviour(proof(3, 5, 1), other.policy)


def test_missing_cosignatures_do_not_excuse_the_log() -> None:
    assert check_misbehaviour(proof(3, 5, 1), WITNESSED.policy).witnesses == frozenset()


def test_witness_of_both_histories_is_named() -> None:
    made = proof(3, 3, 1, WITNESSED)
    assert check_misbehaviour(made, WITNESSED.policy).witnesses == {"w"}
    assert check_misbehaviour(made, KEY.policy).witnesses == frozenset()


def test_two_logs_with_one_key_are_not_one_log_with_two_histories() -> None:
    forged = proof(3, 3, 1).split(b"second\n")[0]
    other = LogKey("log.other/t")
    shown = note(3, tree(3, 1), other).decode().split("\n")[:-1]
    made = forged + b"second\n" + "".join(f"| {line}\n" for line in shown).encode()
    both = type(KEY.policy)((*KEY.policy.logs,))
    with pytest.raises(TrustError, match=r"STO-L01|STO-L020"):
        check_misbehaviour(made, both)


def test_empty_tree_contradicts_nothing() -> None:
    empty = KEY.sign(render_checkpoint(Checkpoint(KEY.origin, 0, leafless())))
    with pytest.raises(TrustError, match="STO-L020"):
        render_misbehaviour(empty, note(3, tree(3)), tree(3).node)


def leafless() -> bytes:
    return range_root(0, 0, tree(1).node)


GOOD = proof(5, 9, 2)
BAD = {
    "empty": b"",
    "other format": GOOD.replace(b"/v1", b"/v2", 1),
    "cut": GOOD[:-1],
    "no second": GOOD.split(b"second\n")[0],
    "third section": GOOD + b"third\n",
    "not base64": GOOD.replace(b"path ", b"path !", 1),
    "short hash": GOOD.replace(b"path ", b"path AAAA\npath ", 1),
    "not utf-8": GOOD + b"\xff\n",
    "too long": GOOD + b"# x\n" * 70_000,
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_proof_is_refused(name: str) -> None:
    with pytest.raises(TrustError, match="STO-L010"):
        check_misbehaviour(BAD[name], KEY.policy)


@given(st.binary(max_size=300))
def test_any_bytes_end_in_our_error(data: bytes) -> None:
    for text in (data, b"stoilo-misbehaviour/v1\n" + data + b"\n"):
        with pytest.raises(TrustError):
            check_misbehaviour(text, KEY.policy)


@given(st.integers(0, len(GOOD) - 1), st.integers(1, 255))
def test_no_changed_byte_changes_what_is_proven(place: int, flip: int) -> None:
    bent = bytearray(GOOD)
    bent[place] ^= flip
    try:
        shown = check_misbehaviour(bytes(bent), KEY.policy)
    except TrustError:
        return
    assert shown == check_misbehaviour(GOOD, KEY.policy)


def test_proof_says_in_words_what_happened() -> None:
    text = GOOD.decode()
    assert "# The log log.test/t has signed two histories." in text
    assert "# It signed 5 leaves" in text

"""Cosignatures by ML-DSA-44 keys (type 06), beside those by Ed25519 keys (type 04)."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.audit.format.merkle import Checkpoint, parse_checkpoint, render_checkpoint
from stoilo.audit.format.note import (
    KeyType,
    Note,
    NoteSignature,
    cosign_note,
    make_key,
    parse_note,
    parse_vkey,
    private_vkey,
    render_note,
    render_vkey,
    subtree_message,
    verify_signature,
)
from stoilo.core.errors import TrustError
from tests.support.notekeys import NoteKey, parse_private_key, render_private_key

# RFC 8032 test 1; for tests only.
SEED = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
KINDS = [KeyType.COSIGNATURE, KeyType.ML_DSA_44]
KEYS = {kind: NoteKey.from_seed("witness.example/w1", kind, SEED) for kind in KINDS}
PQ = KEYS[KeyType.ML_DSA_44]
BODY = b"log.example/t\n8\nXcnaeacGWamtVZy3Ad7ZoqudgjqtL0lgz+Nw7/RgQyg=\n"
TIME = 1679315147
VECTOR = Path(__file__).with_name("vectors") / "ml-dsa-44.note"
VECTOR_VKEY = Path(__file__).with_name("vectors") / "ml-dsa-44.vkey"


def cosigned(key: NoteKey, body: bytes = BODY, time: int = TIME) -> NoteSignature:
    return cosign_note(body, key.vkey.name, key.private, time)


def test_signed_structure_is_that_of_the_specification() -> None:
    message = subtree_message("w.example", TIME, 0, parse_checkpoint(BODY))
    root = parse_checkpoint(BODY).root
    assert message == (
        b"subtree/v1\n\0"
        b"\x09w.example"
        b"\x00\x00\x00\x00\x64\x18\x50\xcb"
        b"\x0dlog.example/t"
        b"\x00\x00\x00\x00\x00\x00\x00\x00"
        b"\x00\x00\x00\x00\x00\x00\x00\x08" + root
    )


def test_committed_vector_verifies() -> None:
    note = parse_note(VECTOR.read_bytes())
    key = parse_vkey(VECTOR_VKEY.read_text().strip())
    assert key == PQ.vkey
    assert note.text == BODY
    assert note.signatures[0].time == TIME
    verify_signature(note.text, note.signatures[0], key)


@pytest.mark.parametrize("kind", KINDS)
def test_cosignature_verifies_and_states_its_time(kind: KeyType) -> None:
    item = cosigned(KEYS[kind])
    assert item.time == TIME
    assert parse_note(render_note(Note(BODY, (item,)))).signatures == (item,)
    verify_signature(BODY, item, KEYS[kind].vkey)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_cosignature_with_any_changed_bit_is_refused(
    kind: KeyType, data: st.DataObject
) -> None:
    item = cosigned(KEYS[kind])
    changed = bytearray(item.signature)
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= 1 << data.draw(
        st.integers(0, 7)
    )
    forged = NoteSignature(item.name, item.key_id, bytes(changed))
    with pytest.raises(TrustError, match="STO-L012"):
        verify_signature(BODY, forged, KEYS[kind].vkey)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", [b"", b"\0", b"x" * 2500])
def test_cosignature_of_another_length_is_refused(kind: KeyType, change: bytes) -> None:
    item = cosigned(KEYS[kind])
    wrong = item.signature + change if change else item.signature[:-1]
    with pytest.raises(TrustError, match="STO-L012"):
        verify_signature(
            BODY, NoteSignature(item.name, item.key_id, wrong), KEYS[kind].vkey
        )


@pytest.mark.parametrize(
    "other",
    [
        Checkpoint("log.example/u", 8, parse_checkpoint(BODY).root),
        Checkpoint("log.example/t", 9, parse_checkpoint(BODY).root),
        Checkpoint("log.example/t", 8, bytes(32)),
    ],
)
def test_cosignature_binds_origin_size_and_root(other: Checkpoint) -> None:
    item = cosigned(PQ)
    with pytest.raises(TrustError, match="STO-L012"):
        verify_signature(render_checkpoint(other), item, PQ.vkey)


def test_ml_dsa_cosignature_binds_the_cosigners_name() -> None:
    item = cosigned(PQ)
    other = private_vkey("witness.example/w2", KeyType.ML_DSA_44, PQ.private)
    with pytest.raises(TrustError, match="STO-L012"):
        verify_signature(BODY, item, other)


def test_ml_dsa_key_signs_checkpoints_only() -> None:
    for text in (b"hello\n", BODY + b"extension\n"):
        with pytest.raises(TrustError, match="STO-L010"):
            cosigned(PQ, body=text)
        with pytest.raises(TrustError, match="STO-L010"):
            verify_signature(text, cosigned(PQ), PQ.vkey)


def test_subtree_states_no_time() -> None:
    tree = parse_checkpoint(BODY)
    assert subtree_message("w", 0, 4, tree) != subtree_message("w", 0, 0, tree)
    for name, time, start in (("w", 1, 4), ("w", 0, 9), ("", 0, 0), ("w", 2**63, 0)):
        with pytest.raises(TrustError, match="STO-L012"):
            subtree_message(name, time, start, tree)


@pytest.mark.parametrize("kind", KINDS)
def test_keys_are_written_and_read_back(kind: KeyType) -> None:
    key = KEYS[kind]
    assert parse_vkey(render_vkey(key.vkey)) == key.vkey
    again = parse_private_key(render_private_key(key) + "\n")
    assert (again.vkey, again.seed) == (key.vkey, key.seed)
    assert "private" not in repr(again)
    assert key.seed.hex() not in repr(again)


def test_ml_dsa_key_for_which_anybody_can_sign_is_refused() -> None:
    good = PQ.vkey.public
    make_key("w", KeyType.ML_DSA_44, good)
    with pytest.raises(TrustError, match="STO-K001"):
        make_key("w", KeyType.ML_DSA_44, good[:32] + bytes(len(good) - 32))


@given(st.text(max_size=80) | st.binary(max_size=40).map(lambda data: str(data)[2:-1]))
def test_any_text_is_a_private_key_or_refused(text: str) -> None:
    for wrong in (text, f"PRIVATE+KEY+{text}", f"PRIVATE+KEY+w+00000000+{text}"):
        with pytest.raises(TrustError, match="STO-K001"):
            parse_private_key(wrong)

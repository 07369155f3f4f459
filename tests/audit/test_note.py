import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from stoilo.audit.note import (
    KeyType,
    Note,
    check_public_key,
    cosign_note,
    parse_note,
    parse_vkey,
    private_vkey,
    render_note,
    render_vkey,
    sign_note,
    verify_signature,
)
from stoilo.core.errors import TrustError

# Published with c2sp.org/signed-note.
VKEY = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
NOTE = (
    "This is an example message.\n\n\u2014 example.com/foo "
    "Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu"
    "72IneyaQM=\n"
).encode()
# RFC 8032 test 1; for tests only.
SEED = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
KEY = Ed25519PrivateKey.from_private_bytes(SEED)
WITNESS_LINE = (
    "\u2014 witness.example/w1 63YswgAAAABkGFDL5+farjSgQ70hdwQDpaLQ4En/WhalXZfgRPbweVmADp1"
    "XonRB6/m7da7V8FnyeD1eE68Xl/CNq+ZAmGDWgYZoCw=="
)
LOG_LINE = (
    "\u2014 log.example/t PFu40ENbBP4j3WgjZGmesQEfvpKkNVqreiXihMsAUqo5XzvYmanqgR8n/ajrvUAG5"
    "P+1G6gWk633/NuDgjk2YfIu0Qo="
)
BODY = b"log.example/t\n8\nXcnaeacGWamtVZy3Ad7ZoqudgjqtL0lgz+Nw7/RgQyg=\n"


def test_published_note_verifies() -> None:
    note = parse_note(NOTE)
    assert note.text == b"This is an example message.\n"
    verify_signature(note.text, note.signatures[0], parse_vkey(VKEY))
    assert render_note(note) == NOTE


def test_published_note_with_other_text_is_refused() -> None:
    note = parse_note(NOTE)
    with pytest.raises(TrustError, match="STO-L012"):
        verify_signature(note.text + b"x\n", note.signatures[0], parse_vkey(VKEY))


def test_own_log_signature_and_cosignature_are_reproduced() -> None:
    log = sign_note(BODY, "log.example/t", KEY)
    witness = cosign_note(BODY, "witness.example/w1", KEY, 1679315147)
    text = render_note(Note(BODY, (log, witness))).decode()
    assert text == f"{BODY.decode()}\n{LOG_LINE}\n{WITNESS_LINE}\n"


def test_own_verifier_keys_are_reproduced() -> None:
    log = private_vkey("log.example/t", KeyType.ED25519, KEY)
    witness = private_vkey("witness.example/w1", KeyType.COSIGNATURE, KEY)
    assert render_vkey(log) == (
        "log.example/t+3c5bb8d0+AddamAGCsQq31Uv+08lkBzoO4XLz2qYjJa8CGmj3B1Ea"
    )
    assert render_vkey(witness) == (
        "witness.example/w1+eb762cc2+BNdamAGCsQq31Uv+08lkBzoO4XLz2qYjJa8CGmj3B1Ea"
    )


def test_cosignature_with_another_time_is_refused() -> None:
    key = private_vkey("witness.example/w1", KeyType.COSIGNATURE, KEY)
    item = cosign_note(BODY, key.name, KEY, 1679315147)
    verify_signature(BODY, item, key)
    assert item.time == 1679315147
    later = type(item)(item.name, item.key_id, bytes(8) + item.signature[8:])
    with pytest.raises(TrustError, match="STO-L012"):
        verify_signature(BODY, later, key)


def test_ml_dsa_key_is_parsed_but_its_signature_is_not_believed() -> None:
    material = bytes([6]) + bytes(1312)
    key = parse_vkey(render_vkey(make_ml_dsa(material[1:])))
    note = parse_note(NOTE)
    with pytest.raises(TrustError, match="STO-L016"):
        verify_signature(note.text, note.signatures[0], key)


def make_ml_dsa(public: bytes):
    from stoilo.audit.note import make_key  # noqa: PLC0415

    return make_key("witness.example/pq", KeyType.ML_DSA_44, public)


SMALL_ORDER = [
    "01" + "00" * 31,
    "01" + "00" * 30 + "80",
    "00" * 32,
    "ec" + "ff" * 30 + "7f",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
    "ee" + "ff" * 30 + "7f",  # not canonical
    "ff" * 32,
]


@pytest.mark.parametrize("public", SMALL_ORDER)
def test_weak_public_key_is_refused_at_configuration(public: str) -> None:
    with pytest.raises(TrustError, match="STO-L004"):
        check_public_key(bytes.fromhex(public))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "example.com/foo",
        "example.com/foo+530d903a",
        "example.com/foo+530d903b+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",
        "example.com/bar+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",
        "example.com/foo+530D903A+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",
        "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2l",
        "a b+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",
        "example.com/foo+530d903a+Ag==",
        "example.com/foo+530d903a+",
    ],
)
def test_malformed_vkey_is_refused(text: str) -> None:
    with pytest.raises(TrustError, match="STO-L004"):
        parse_vkey(text)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"text\n",
        b"text\n\n",
        NOTE[:-1],
        NOTE.replace(b"example m", b"example\tm"),
        NOTE.replace(b"\xe2\x80\x94", b"-"),
        NOTE.replace(b"Uw2Q", b"Uw2!"),
        NOTE.replace(b"aQM=", b"aQN="),
        b"\xff\n\n" + NOTE.partition(b"\n\n")[2],
        b"x" * 70_000 + NOTE,
        NOTE + NOTE.partition(b"\n\n")[2] * 40,
    ],
)
def test_malformed_note_is_refused(data: bytes) -> None:
    with pytest.raises(TrustError, match="STO-L010"):
        parse_note(data)


@given(st.binary(max_size=300) | st.binary(max_size=80).map(lambda tail: NOTE + tail))
def test_any_bytes_parse_or_raise_trust_error(data: bytes) -> None:
    try:
        note = parse_note(data)
    except TrustError:
        return
    assert render_note(note) == data

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from stoilo.audit.format.note import (
    KeyType,
    Note,
    NoteSignature,
    check_name,
    check_public_key,
    cosign_note,
    make_key,
    parse_note,
    parse_vkey,
    private_vkey,
    render_note,
    render_vkey,
    sign_note,
    verify_signature,
)
from stoilo.core.errors import TrustError
from tests.support.notekeys import parse_private_key

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


# Go's sumdb/note: two keys, one of them with its private text.
PETER = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
PETER_SECRET = (
    "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz"
)
ENOCH = "EnochRoot+af0cfe78+ATtqJ7zOtqQtYqOo0CpvDXNlMhV3HeJDpjrASKGLWdop"
RIDDLE = (
    b"If you think cryptography is the answer to your problem,\n"
    b"then you don't know what your problem is.\n"
)
PETER_LINE = (
    "\u2014 PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNX"
    "gKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
).encode()
ENOCH_LINE = (
    "\u2014 EnochRoot rwz+eBzmZa0SO3NbfRGzPCpDckykFXSdeX+MNtCOXm2/5n2tiOHp+vAF1aGrQ5ovTG0"
    "1oOTGwnWLox33WWd1RvMc+QQ=\n"
).encode()


def test_published_private_key_signs_the_published_note() -> None:
    key = parse_private_key(PETER_SECRET)
    assert render_vkey(key.vkey) == PETER
    assert isinstance(key.private, Ed25519PrivateKey)
    item = sign_note(RIDDLE, key.vkey.name, key.private)
    assert render_note(Note(RIDDLE, (item,))) == RIDDLE + b"\n" + PETER_LINE


def test_note_of_two_published_keys_verifies_by_each() -> None:
    note = parse_note(RIDDLE + b"\n" + PETER_LINE + ENOCH_LINE)
    for item, vkey in zip(note.signatures, (PETER, ENOCH), strict=True):
        key = parse_vkey(vkey)
        assert (item.name, item.key_id) == (key.name, key.key_id)
        verify_signature(note.text, item, key)


def test_published_signature_by_the_other_key_is_refused() -> None:
    note = parse_note(RIDDLE + b"\n" + PETER_LINE)
    with pytest.raises(TrustError, match="STO-L012"):
        verify_signature(note.text, note.signatures[0], parse_vkey(ENOCH))


@pytest.mark.parametrize("text", [PETER, ENOCH, PETER_SECRET])
def test_every_mangling_of_a_published_key_is_refused(text: str) -> None:
    parse = parse_private_key if text.startswith("PRIVATE") else parse_vkey
    parse(text)
    pieces = [
        text[start:end]
        for start in range(len(text) + 1)
        for end in range(start, len(text) + 1)
        if end - start < len(text)
    ]
    bumped = [
        text[:at] + chr(ord(text[at]) + 1) + text[at + 1 :] for at in range(len(text))
    ]
    for wrong in pieces + bumped:
        with pytest.raises(TrustError, match="STO-K001"):
            parse(wrong)


@pytest.mark.parametrize(
    "tail",
    [
        b"",
        b"\n",
        b"\n" + PETER_LINE[:-1],
        b"\n\xe2\x80\x94 Bad Name " + PETER_LINE.split()[-1] + b"\n",
        b"\n" + PETER_LINE + b"Unexpected line.\n",
        b"\n" + PETER_LINE * 101,
    ],
)
def test_published_malformed_note_is_refused(tail: bytes) -> None:
    for text in (RIDDLE, b"\x01" + RIDDLE, b"\xff" + RIDDLE):
        with pytest.raises(TrustError, match="STO-L010"):
            parse_note(text + tail)


def test_lengthened_known_signature_is_refused() -> None:
    line = PETER_LINE[:60] + b"ABCD" + PETER_LINE[60:]
    note = parse_note(RIDDLE + b"\n" + line)
    with pytest.raises(TrustError, match="STO-L012"):
        verify_signature(note.text, note.signatures[0], parse_vkey(PETER))


@pytest.mark.parametrize(
    "name", ["", "a b", "a+b", "a\u00a0b", "x" * 256, "\u00fc" * 128, "a\udcffb"]
)
def test_bad_name_is_refused_in_keys(name: str) -> None:
    with pytest.raises(TrustError, match="STO-K001"):
        make_key(name, KeyType.ED25519, KEY.public_key().public_bytes_raw())


def test_sixteen_signatures_of_five_kilobytes_are_read() -> None:
    items = tuple(NoteSignature(f"w{n}", bytes(4), bytes(5000)) for n in range(16))
    assert parse_note(render_note(Note(BODY, items))).signatures == items


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
    with pytest.raises(TrustError, match="STO-K001"):
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
    with pytest.raises(TrustError, match="STO-K001"):
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
        b"x" * 140_000 + NOTE,
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


@pytest.mark.parametrize("char", ["\x1b", "\x7f", "\x9b", "\u202e", "\u200b"])
def test_name_that_would_command_a_terminal_is_refused(char: str) -> None:
    with pytest.raises(TrustError, match="STO-L010"):
        check_name(f"log.test/{char}t")
    line = f"\u2014 w{char} {base64.b64encode(bytes(68)).decode()}\n"
    with pytest.raises(TrustError, match="STO-L010"):
        parse_note(f"text\n\n{line}".encode())

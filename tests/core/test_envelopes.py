import base64
import contextlib
import json

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import TrustError
from stoilo.core.signatures import (
    IN_TOTO_PAYLOAD,
    Envelope,
    PrivateKey,
    Signature,
    pae,
    parse_envelope,
    render_envelope,
    sign_envelope,
    verify_envelope,
)

# The vector published with the DSSE protocol (P-256, RFC 6979).
HELLO_TYPE = "http://example.com/HelloWorld"
HELLO_PAE = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
HELLO_X = 46950820868899156662930047687818585632848591499744589407958293238635476079160
HELLO_Y = 5640078356564379163099075877009565129882514886557779369047442380624545832820
HELLO_SIG = (
    "A3JqsQGtVsJ2O2xqrI5IcnXip5GToJ3F+FnZ+O88SjtR6rDAajabZKciJTfUiHqJ"
    "PcIAriEGAHTVeCUjW2JIZA=="
)
# The same PAE under the key of RFC 8032 test 1.
SEED_1 = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
ED25519_SIG = (
    "4DHX3Zn4qpBKvEj7maE8O9u9bjXEnPLLnyXVUJ2PXJR8DSLcL3QDpFvfJOj3pB/S"
    "PHsl6Jg4boxsMb6KvuYABw=="
)
KEY = PrivateKey(Ed25519PrivateKey.from_private_bytes(bytes.fromhex(SEED_1)))
OTHER = PrivateKey.generate()


class P256Key:
    """The published vector's key: the algorithm is the caller's choice."""

    identity = b"p256"

    def verifies(self, signature: bytes, message: bytes) -> bool:
        key = ec.EllipticCurvePublicNumbers(HELLO_X, HELLO_Y, ec.SECP256R1())
        r, s = (
            int.from_bytes(half, "big") for half in (signature[:32], signature[32:])
        )
        try:
            key.public_key().verify(
                utils.encode_dss_signature(r, s), message, ec.ECDSA(SHA256())
            )
        except InvalidSignature:
            return False
        return True


def text(payload: str, signatures: object, kind: str = HELLO_TYPE) -> bytes:
    return json.dumps(
        {"payloadType": kind, "payload": payload, "signatures": signatures}
    ).encode()


def code_of(data: bytes) -> str:
    with pytest.raises(TrustError) as caught:
        parse_envelope(data)
    return caught.value.code


def test_published_vector_verifies() -> None:
    data = text("aGVsbG8gd29ybGQ=", [{"keyid": "", "sig": HELLO_SIG}])
    envelope = parse_envelope(data)
    assert pae(envelope.payload_type, envelope.payload) == HELLO_PAE
    payload = verify_envelope(envelope, [P256Key()], payload_type=HELLO_TYPE)
    assert payload == b"hello world"


def test_rfc8032_key_signs_the_same_encoding_to_the_known_signature() -> None:
    assert base64.b64encode(KEY.sign(HELLO_PAE)).decode() == ED25519_SIG


def test_lengths_count_bytes_not_characters() -> None:
    assert pae("é", b"") == b"DSSEv1 2 \xc3\xa9 0 "


@pytest.mark.parametrize("payload", ["-_8=", "+/8=", "-_8", "+/8"])
def test_both_alphabets_are_read(payload: str) -> None:
    assert parse_envelope(text(payload, [])).payload == b"\xfb\xff"


@pytest.mark.parametrize("payload", ["*", "A", "AA=A", "aGk\n", "é", "A" * 5])
def test_other_characters_are_refused(payload: str) -> None:
    assert code_of(text(payload, [])) == "STO-A002"


def test_two_signatures_by_one_key_count_once() -> None:
    twice = sign_envelope(b"x", [("a", KEY), ("b", KEY)], IN_TOTO_PAYLOAD)
    both = sign_envelope(b"x", [("a", KEY), ("b", OTHER)], IN_TOTO_PAYLOAD)
    keys = [KEY.public, OTHER.public, KEY.public]
    with pytest.raises(TrustError, match="STO-A007"):
        verify_envelope(twice, keys, threshold=2)
    assert verify_envelope(both, keys, threshold=2) == b"x"


def test_key_id_decides_nothing() -> None:
    envelope = sign_envelope(b"x", [("not this one", KEY)], IN_TOTO_PAYLOAD)
    assert verify_envelope(envelope, [OTHER.public, KEY.public]) == b"x"


@pytest.mark.parametrize(
    ("envelope", "code"),
    [
        (sign_envelope(b"x", [("", KEY)], "text/plain"), "STO-A004"),
        (Envelope(IN_TOTO_PAYLOAD, b"x", ()), "STO-A007"),
        (sign_envelope(b"x", [("", OTHER)], IN_TOTO_PAYLOAD), "STO-A006"),
        (Envelope(IN_TOTO_PAYLOAD, b"x", (Signature("", b""),)), "STO-A006"),
    ],
)
def test_bad_signing_is_refused_with_its_own_code(
    envelope: Envelope, code: str
) -> None:
    with pytest.raises(TrustError) as caught:
        verify_envelope(envelope, [KEY.public])
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b" " * (128 * 1024 + 1), "STO-A002"),
        (b"[]", "STO-A002"),
        (b"\xef\xbb\xbf{}", "STO-A002"),
        (b'{"payload":"","payload":""}', "STO-A002"),
        (text("", [{"sig": "", "keyid": 1}]), "STO-A002"),
        (text("", [1]), "STO-A002"),
        (text("", [{"sig": ""}] * 17), "STO-A002"),
        (b'{"payloadType":"","payload":"","signatures":[],"x":1.5}', "STO-A002"),
        (b"[" * 17 + b"]" * 17, "STO-A002"),
    ],
)
def test_misshapen_envelope_is_refused(data: bytes, code: str) -> None:
    assert code_of(data) == code


@given(st.binary(max_size=200))
def test_any_bytes_are_an_envelope_or_our_error(data: bytes) -> None:
    with contextlib.suppress(TrustError):
        parse_envelope(data)


@given(st.binary(max_size=100), st.text(max_size=20))
def test_rendered_envelope_parses_to_itself(payload: bytes, kind: str) -> None:
    envelope = sign_envelope(
        payload, [("k", KEY)], kind.encode("utf-8", "ignore").decode()
    )
    assert parse_envelope(render_envelope(envelope)) == envelope

"""The ceremonies on the examples that WebAuthn Level 3 prints, and on bytes of all sorts."""

from __future__ import annotations

import pytest
from fido2.utils import websafe_decode
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import DeniedError
from stoilo.web.console.ceremonies import (
    Ceremonies,
    Place,
    find_place,
    read_challenge,
    read_id,
)
from tests.support.authenticator import Authenticator, b64

# W3C Web Authentication Level 3, section 16: the examples' challenges, client data and
# attestation objects, as printed there.
PARTY = Place("example.org", "https://example.org")
SELF_SIGNED = (
    "7869c2b772d4b58eba9378cf8f29e26cf935aa77df0da89fa99c0bdc0a76f7e5",
    (
        "7b2274797065223a22776562617574686e2e637265617465222c226368616c6c656e6765223a2265"
        "476e4374334c55745936366b336a506a796e6962506b31716e666644616966715a774c3341703239"
        "2d55222c226f726967696e223a2268747470733a2f2f6578616d706c652e6f7267222c2263726f73"
        "734f726967696e223a66616c73652c22657874726144617461223a22636c69656e74446174614a53"
        "4f4e206d617920626520657874656e6465642077697468206164646974696f6e616c206669656c64"
        "7320696e20746865206675747572652c207375636820617320746869733a205539685458764b4532"
        "55526b4d6e625f307859485667227d"
    ),
    (
        "a363666d74667061636b65646761747453746d74a263616c672663736967584630440220067a2075"
        "4ab925005dbf378097c92120031581c73228d1fb4f5b881bcd7da98302207fc7b147558c7c0eba3a"
        "f18bd9d121fa3d3a26d17fe3f220272178f473b6006d68617574684461746158a4bfabc37432958b"
        "063360d3ad6461c9c4735ae7f8edd46592a5e0f01452b2e4b55d00000000df850e09db6afbdfab51"
        "697791506cfc0020455ef34e2043a87db3d4afeb39bbcb6cc32df9347c789a865ecdca129cbef58c"
        "a5010203262001215820eb151c8176b225cc651559fecf07af450fd85802046656b34c18f6cf1938"
        "43c5225820927b8aa427a2be1b8834d233a2d34f61f13bfd44119c325d5896e183fee484f2"
    ),
)
NOT_VERIFIED = (
    "00c30fb78531c464d2b6771dab8d7b603c01162f2fa486bea70f283ae556e130",
    (
        "7b2274797065223a22776562617574686e2e637265617465222c226368616c6c656e6765223a2241"
        "4d4d507434557878475453746e63647134313759447742466938767049612d7077386f4f75565734"
        "5441222c226f726967696e223a2268747470733a2f2f6578616d706c652e6f7267222c2263726f73"
        "734f726967696e223a66616c73652c22657874726144617461223a22636c69656e74446174614a53"
        "4f4e206d617920626520657874656e6465642077697468206164646974696f6e616c206669656c64"
        "7320696e20746865206675747572652c207375636820617320746869733a20426b5165446a646354"
        "427258426941774a544c453551227d"
    ),
    (
        "a363666d74646e6f6e656761747453746d74a068617574684461746158a4bfabc37432958b063360"
        "d3ad6461c9c4735ae7f8edd46592a5e0f01452b2e4b559000000008446ccb9ab1db374750b2367ff"
        "6f3a1f0020f91f391db4c9b2fde0ea70189cba3fb63f579ba6122b33ad94ff3ec330084be4a50102"
        "03262001215820afefa16f97ca9b2d23eb86ccb64098d20db90856062eb249c33a9b672f26df6122"
        "5820930a56b87a2fca66334b03458abf879717c12cc68ed73290af2e2664796b9220"
    ),
)
IN_A_FRAME = (
    "3be5aacd03537142472340ab5969f240f1d87716e20b6807ac230655fa4b3b49",
    (
        "7b2274797065223a22776562617574686e2e637265617465222c226368616c6c656e6765223a224f"
        "2d57717a514e5463554a484930437257576e7951504859647862694332674872434d475666704c4f"
        "306b222c226f726967696e223a2268747470733a2f2f6578616d706c652e6f7267222c2263726f73"
        "734f726967696e223a747275652c22657874726144617461223a22636c69656e74446174614a534f"
        "4e206d617920626520657874656e6465642077697468206164646974696f6e616c206669656c6473"
        "20696e20746865206675747572652c207375636820617320746869733a207a5a7175457444523944"
        "577170573574425754467567227d"
    ),
    (
        "a363666d74646e6f6e656761747453746d74a068617574684461746158a4bfabc37432958b063360"
        "d3ad6461c9c4735ae7f8edd46592a5e0f01452b2e4b54500000000883f4f6014f19c09d87aa38123"
        "be48d000206e1050c0d2ca2f07c755cb2c66a74c64fa43065c18f938354d9915db2bd5ce57a50102"
        "0326200121582022200a473f90b11078851550d03b4e44a2279f8c4eca27b3153dedfe03e4e97d22"
        "5820cbd0be95e746ad6f5a8191be11756e4c0420e72f65b466d39bc56b8b123a9c6e"
    ),
)
SELF_SIGNED_ID = "455ef34e2043a87db3d4afeb39bbcb6cc32df9347c789a865ecdca129cbef58c"
HERE = Ceremonies(Place("localhost", "http://localhost:1"))
CHALLENGE = b"c" * 56
NAMES = (
    *("id", "clientDataJSON", "attestationObject"),
    *("authenticatorData", "signature", "userHandle"),
)


def fields_of(example: tuple[str, str, str]) -> tuple[dict[str, str], bytes]:
    challenge, client, made = map(bytes.fromhex, example)
    return {
        "id": "AA",
        "clientDataJSON": b64(client),
        "attestationObject": b64(made),
    }, challenge


def test_printed_registration_is_read() -> None:
    fields, challenge = fields_of(SELF_SIGNED)
    assert read_challenge(fields) == challenge
    found = Ceremonies(PARTY).read_made(fields, challenge)
    assert (found.credential_id.hex(), found.count) == (SELF_SIGNED_ID, 0)


@pytest.mark.parametrize("example", [NOT_VERIFIED, IN_A_FRAME])
def test_printed_registration_that_we_want_not_is_refused(
    example: tuple[str, str, str],
) -> None:
    with pytest.raises(DeniedError, match="STO-R001"):
        Ceremonies(PARTY).read_made(*fields_of(example))


@pytest.mark.parametrize(
    "place",
    [
        Place("example.com", "https://example.org"),
        Place("example.org", "https://www.example.org"),
        Place("example.org", "http://example.org"),
        Place("org", "https://example.org"),
    ],
)
def test_printed_registration_is_good_at_its_place_alone(place: Place) -> None:
    with pytest.raises(DeniedError, match="STO-R001"):
        Ceremonies(place).read_made(*fields_of(SELF_SIGNED))


def test_printed_signature_without_verification_is_refused() -> None:
    made = Ceremonies(PARTY).read_made(*fields_of(SELF_SIGNED))
    challenge = "4478a10b1352348dd160c1353b0d469b5db19eb91c27f7dfa6fed39fe26af20b"
    client = (
        "7b2274797065223a22776562617574686e2e676574222c226368616c6c656e6765223a225248"
        "696843784e534e493352594d45314f7731476d3132786e726b634a5f6666707637546e2d4a71"
        "386773222c226f726967696e223a2268747470733a2f2f6578616d706c652e6f7267222c2263"
        "726f73734f726967696e223a66616c73652c22657874726144617461223a22636c69656e7444"
        "6174614a534f4e206d617920626520657874656e6465642077697468206164646974696f6e61"
        "6c206669656c647320696e20746865206675747572652c207375636820617320746869733a20"
        "6754623533727a36456853576f6d58477a696d433151227d"
    )
    signature = (
        "304402203310b9431903c401f1be2bdc8d23a4007682dbbddcf846994947b7f465daf8400220"
        "4e94dd00047b316061b3b99772b7efd95994a83ef584b3b6b825ea3550251b66"
    )
    data = "bfabc37432958b063360d3ad6461c9c4735ae7f8edd46592a5e0f01452b2e4b50900000000"
    names = (*NAMES[:2], *NAMES[3:])
    sent = (SELF_SIGNED_ID, client, data, signature, "00")
    fields = {
        name: b64(bytes.fromhex(one)) for name, one in zip(names, sent, strict=True)
    }
    party = Ceremonies(PARTY)
    with pytest.raises(DeniedError) as caught:
        party.check_signed(fields, bytes.fromhex(challenge), made.data, b"\0")
    assert "User verification required" in str(
        caught.value.__cause__
    )  # and nothing else


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://a.example/", "https://a.example"),
        ("https://a.example:8443/x/", "https://a.example:8443"),
        ("http://127.0.0.1:57080/", "http://localhost:57080"),
        ("http://[::1]:57080/", "http://localhost:57080"),
        ("http://localhost/", "http://localhost"),
        ("https://192.0.2.1/", ""),
        ("http://a.example/", ""),
    ],
)
def test_place_is_a_name_over_https_or_this_machine(url: str, origin: str) -> None:
    found = find_place(url)
    assert (found.origin if found else "") == origin


def test_user_id_is_of_one_account_at_one_place() -> None:
    there = Ceremonies(Place("localhost", "http://localhost:2"))
    ids = {HERE.user_id(1, "ada"), HERE.user_id(2, "ben"), there.user_id(1, "ada")}
    assert len(ids) == 3
    assert HERE.user_id(1, "ada") in ids


LINES = st.binary(max_size=600).map(b64) | st.text(max_size=80)
CBOR = st.sampled_from([b"\x81", b"\xa1", b"\xbf", b"\x9b", b"\x5b", b"\xff"])
DEEP = st.tuples(CBOR, st.integers(0, 3000)).map(lambda one: b64(one[0] * one[1]))
FORM = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(NAMES, LINES | DEEP),
)


@given(FORM, st.booleans())
def test_any_form_ends_in_a_value_or_our_error(
    fields: dict[str, str], good_client: bool
) -> None:
    key = Authenticator("http://localhost:1")
    if good_client:
        asked = {"challenge": b64(CHALLENGE)}
        fields = fields | {"clientDataJSON": b64(key.client_data("create", asked))}
    for read in (
        lambda: HERE.read_made(fields, CHALLENGE),
        lambda: HERE.check_signed(fields, CHALLENGE, b"", b""),
        lambda: read_challenge(fields),
        lambda: read_id(fields),
    ):
        try:
            read()
        except DeniedError as error:
            assert error.code == "STO-R001"


@given(st.data())
def test_registration_with_changed_bytes_ends_in_a_value_or_our_error(
    data: st.DataObject,
) -> None:
    asked = {"challenge": b64(CHALLENGE), "user": {"id": "AA"}}
    fields = Authenticator("http://localhost:1").make(asked)
    made = bytearray(websafe_decode(fields["attestationObject"]))
    for _ in range(data.draw(st.integers(0, 3))):
        made[data.draw(st.integers(0, len(made) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = HERE.read_made(
            fields | {"attestationObject": b64(bytes(made))}, CHALLENGE
        )
        assert found.credential_id
    except DeniedError as error:
        assert error.code == "STO-R001"

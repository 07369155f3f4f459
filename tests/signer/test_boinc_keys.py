"""BOINC's format against OpenSSL, which BOINC itself uses."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.boinc.codesign import (
    check_boinc_signature,
    md5_hex,
    parse_boinc_public,
    parse_boinc_signature,
    render_boinc_public,
    render_boinc_signature,
)
from stoilo.core.errors import TrustError
from stoilo.signer.boinc_keys import (
    BoincPrivateKey,
    generate_boinc_key,
    parse_boinc_private,
    render_boinc_private,
    sign_key_change,
    sign_md5,
)

VECTORS = Path(__file__).parent / "vectors"
"""Made by `openssl genrsa` and `openssl pkeyutl -sign` over the MD5 of the empty file."""

KEY = parse_boinc_private((VECTORS / "boinc_private.txt").read_text())
MD5 = md5_hex(b"the launcher")
SIGNATURE = sign_md5(MD5, KEY)


def recovered(text: str, key: BoincPrivateKey) -> bytes:
    """What OpenSSL finds in a signature: BOINC's client compares it with the MD5."""
    public = rsa.RSAPublicNumbers(key.public.exponent, key.public.modulus).public_key()
    data = parse_boinc_signature(text)
    return public.recover_data_from_signature(data, padding.PKCS1v15(), None)


def test_signature_is_what_openssl_expects() -> None:
    assert recovered(SIGNATURE, KEY) == MD5.encode()


def test_openssls_own_key_and_signature_are_ours_too() -> None:
    private = (VECTORS / "boinc_private.txt").read_text()
    key = parse_boinc_private(private)
    assert render_boinc_private(key) == private
    assert render_boinc_public(key.public) == (VECTORS / "boinc_public.txt").read_text()
    signature = (VECTORS / "boinc_empty_file.sig").read_text()
    assert sign_md5(md5_hex(b""), key) == signature
    check_boinc_signature(md5_hex(b""), signature, key.public)


def test_texts_have_boincs_shape() -> None:
    public = render_boinc_public(KEY.public).split("\n")
    assert public[0] == "1024"
    assert public[-2:] == [".", ""]
    assert [len(line) for line in public[1:-2]] == [64] * 8
    assert [len(line) for line in SIGNATURE.split("\n")] == [64] * 4 + [1, 0]
    assert len(render_boinc_private(KEY).split("\n")) == 1 + 22 + 2


def test_keys_survive_their_text() -> None:
    assert parse_boinc_public(render_boinc_public(KEY.public)) == KEY.public
    assert parse_boinc_private(render_boinc_private(KEY)) == KEY


def test_signature_of_another_file_or_key_is_refused() -> None:
    check_boinc_signature(MD5, SIGNATURE, KEY.public)
    for md5, key in ((md5_hex(b"x"), KEY), (MD5, generate_boinc_key())):
        with pytest.raises(TrustError, match="STO-K076"):
            check_boinc_signature(md5, SIGNATURE, key.public)


def test_signature_plus_the_modulus_is_refused() -> None:
    limit = 2**1024 - KEY.public.modulus
    md5, number = next(
        (md5, number)
        for md5 in (md5_hex(b"%d" % count) for count in range(10_000))
        if (number := int(parse_boinc_signature(sign_md5(md5, KEY)).hex(), 16)) < limit
    )
    raised = (number + KEY.public.modulus).to_bytes(128, "big")
    with pytest.raises(TrustError, match="STO-K076"):
        check_boinc_signature(md5, render_boinc_signature(raised), KEY.public)


@pytest.mark.parametrize("digit", ["00", "01" + "00" * 127, "ff" * 128])
def test_forged_blocks_are_refused(digit: str) -> None:
    text = render_boinc_signature(bytes.fromhex(digit).rjust(128, b"\0"))
    with pytest.raises(TrustError, match="STO-K076"):
        check_boinc_signature(MD5, text, KEY.public)


def test_new_key_is_signed_as_clients_compare_it() -> None:
    new = generate_boinc_key().public
    text = sign_key_change(new, KEY)
    stripped = render_boinc_public(new).rstrip("\n")
    assert recovered(text, KEY) == md5_hex(stripped.encode()).encode()


@given(st.integers(0, len(SIGNATURE) - 1), st.integers(1, 127))
def test_any_changed_byte_of_a_signature_is_refused(at: int, flip: int) -> None:
    raw = SIGNATURE.encode()
    text = (raw[:at] + bytes([raw[at] ^ flip]) + raw[at + 1 :]).decode()
    with pytest.raises(TrustError):
        check_boinc_signature(MD5, text, KEY.public)


@given(st.integers(0, len(render_boinc_public(KEY.public)) - 1), st.integers(1, 127))
def test_any_changed_byte_of_a_key_is_refused_or_another_key(
    at: int, flip: int
) -> None:
    raw = render_boinc_public(KEY.public).encode()
    text = (raw[:at] + bytes([raw[at] ^ flip]) + raw[at + 1 :]).decode()
    try:
        assert parse_boinc_public(text) != KEY.public
    except TrustError:
        pass


@given(st.text(max_size=40))
def test_any_text_is_our_error(text: str) -> None:
    for parse in (parse_boinc_public, parse_boinc_private, parse_boinc_signature):
        with pytest.raises(TrustError, match="STO-K076"):
            parse(text)


@pytest.mark.parametrize("md5", ["", "D41D8CD98F00B204E9800998ECF8427E", "0" * 31])
def test_what_is_no_md5_is_not_signed(md5: str) -> None:
    with pytest.raises(TrustError, match="STO-K076"):
        sign_md5(md5, KEY)

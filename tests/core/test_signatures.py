import contextlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import TrustError
from stoilo.core.signatures import (
    PRIME,
    PrivateKey,
    load_private_key,
    load_public_key,
    parse_public_key,
)

# The eight points whose order divides the cofactor, and their non-canonical spellings.
SMALL_ORDER = [
    "0100000000000000000000000000000000000000000000000000000000000000",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
]
NOT_CANONICAL = [
    "0100000000000000000000000000000000000000000000000000000000000080",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
]


@pytest.mark.parametrize("text", SMALL_ORDER)
def test_small_order_point_is_refused_when_loaded(text: str) -> None:
    with pytest.raises(TrustError) as caught:
        parse_public_key(text)
    assert caught.value.code == "STO-K001"


@pytest.mark.parametrize("text", NOT_CANONICAL)
def test_second_spelling_of_a_point_is_refused(text: str) -> None:
    with pytest.raises(TrustError) as caught:
        parse_public_key(text)
    assert caught.value.code == "STO-K001"


def test_openssl_alone_accepts_the_forgery_that_loading_refuses() -> None:
    """The negative control: without our check any message verifies."""
    raw = bytes.fromhex(SMALL_ORDER[0])
    Ed25519PublicKey.from_public_bytes(raw).verify(raw + bytes(32), b"any message")


@given(st.binary(max_size=40))
def test_any_bytes_are_a_key_or_our_error(raw: bytes) -> None:
    with contextlib.suppress(TrustError):
        assert load_public_key(raw).raw == raw


@pytest.mark.parametrize("attempt", range(20))
def test_generated_keys_load_and_verify(attempt: int) -> None:
    del attempt
    key = PrivateKey.generate()
    public = load_public_key(key.public.raw)
    assert public.verifies(key.sign(b"m"), b"m")
    assert not public.verifies(key.sign(b"m"), b"n")
    assert int.from_bytes(public.raw, "little") % 2**255 < PRIME


def test_private_key_survives_pem() -> None:
    key = PrivateKey.generate()
    assert load_private_key(key.pem()).public == key.public


@pytest.mark.parametrize("pem", [b"", b"-----BEGIN PRIVATE KEY-----\n"])
def test_broken_pem_is_our_error(pem: bytes) -> None:
    with pytest.raises(TrustError, match="STO-K001"):
        load_private_key(pem)

"""BOINC's private code-sign key, in BOINC's own text form; offline only.

    private    modulus, exponent, private exponent (128 bytes each), p, q, d mod p-1,
               d mod q-1, q^-1 mod p (64 each), in lines of hex as in `core.boinc.codesign`

BOINC's format has room for 1024 bits and knows MD5 only. So nothing here is trusted on its
own: what is signed was rebuilt, attested and named by SHA-256 under TUF before, and the
signature protects no more than the launcher's way to a host (ADR 20).
Source: BOINC lib/crypt.cpp by way of boinc.md §3.6; checked against OpenSSL in the tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm
from typing import Final

from cryptography.hazmat.primitives.asymmetric import rsa

from stoilo.core.boinc.codesign import (
    BITS,
    BYTES,
    EXPONENT,
    BoincPublicKey,
    check_boinc_signature,
    key_change_md5,
    padded_block,
    parse_boinc_numbers,
    parse_boinc_public,
    render_boinc_numbers,
    render_boinc_public,
    render_boinc_signature,
    unreadable,
)

_PRIVATE_SIZES: Final = (128, 128, 128, 64, 64, 64, 64, 64)


@dataclass(frozen=True, slots=True)
class BoincPrivateKey:
    """The private code-sign key; no server ever holds it."""

    public: BoincPublicKey
    d: int
    p: int
    q: int


def generate_boinc_key() -> BoincPrivateKey:
    """Return a new RSA-1024 key from the system's random source."""
    numbers = rsa.generate_private_key(EXPONENT, BITS).private_numbers()
    public = BoincPublicKey(numbers.public_numbers.n, numbers.public_numbers.e)
    return BoincPrivateKey(public, numbers.d, numbers.p, numbers.q)


def sign_md5(md5: str, key: BoincPrivateKey) -> str:
    """Return the text of a ``.sig`` file for a file with this MD5 (lower-case hex)."""
    number = int.from_bytes(padded_block(md5), "big")
    signature = pow(number, key.d, key.public.modulus).to_bytes(BYTES, "big")
    text = render_boinc_signature(signature)
    check_boinc_signature(md5, text, key.public)  # a fault in the power shows here
    return text


def sign_key_change(new: BoincPublicKey, old: BoincPrivateKey) -> str:
    """Return the signature by which clients accept a new key for the old one.

    A stock server keeps the old public key as ``old_key_N`` and this text as
    ``signature_stripped_N``: it covers the new key's text without the final line end.
    """
    return sign_md5(key_change_md5(new), old)


def render_boinc_private(key: BoincPrivateKey) -> str:
    """Return the private key's text, for an encrypted file only."""
    numbers = (
        key.public.modulus,
        key.public.exponent,
        key.d,
        key.p,
        key.q,
        key.d % (key.p - 1),
        key.d % (key.q - 1),
        pow(key.q, -1, key.p),
    )
    return render_boinc_numbers(numbers, _PRIVATE_SIZES)


def parse_boinc_private(text: str) -> BoincPrivateKey:
    """Parse a private key's text; raises ``STO-K076``."""
    n, e, d, p, q, *_ = parse_boinc_numbers(text, _PRIVATE_SIZES)
    public = parse_boinc_public(render_boinc_public(BoincPublicKey(n, e)))
    key = BoincPrivateKey(public, d, p, q)
    if min(p, q) <= 1 or p == q or p * q != n or e * d % lcm(p - 1, q - 1) != 1:
        raise unreadable("the numbers of a BOINC private key do not fit")
    if render_boinc_private(key) != text:
        raise unreadable("the numbers of a BOINC private key do not fit")
    return key

"""BOINC's code-sign key and its signatures, in BOINC's own text form; offline only.

    key        1024 LF, then hex in lines of 64 digits, then a full stop
    public     modulus 128 bytes, exponent 128 bytes, big-endian
    private    modulus, exponent, private exponent (128 each), p, q, d mod p-1, d mod q-1,
               q^-1 mod p (64 each)
    signature  128 bytes in the same lines of hex: RSA PKCS#1 v1.5 block type 1 over the 32
               lower-case hex digits of the file's MD5, without a DigestInfo

BOINC's format has room for 1024 bits and knows MD5 only. So nothing here is trusted on its
own: what is signed was rebuilt, attested and named by SHA-256 under TUF before, and the
signature protects no more than the launcher's way to a host (ADR 20).
Source: BOINC lib/crypt.cpp by way of boinc.md §3.6; checked against OpenSSL in the tests.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from math import lcm
from typing import Final

from cryptography.hazmat.primitives.asymmetric import rsa

from stoilo.core.errors import TrustError

__all__ = [
    "BoincPrivateKey",
    "BoincPublicKey",
    "check_boinc_signature",
    "generate_boinc_key",
    "md5_hex",
    "parse_boinc_private",
    "parse_boinc_public",
    "parse_boinc_signature",
    "render_boinc_private",
    "render_boinc_public",
    "render_boinc_signature",
    "sign_key_change",
    "sign_md5",
]

BITS: Final = 1024
BYTES: Final = BITS // 8
EXPONENT: Final = 65537
MAX_TEXT_BYTES: Final = 4096
_LINE_BYTES: Final = 32
_PUBLIC_SIZES: Final = (128, 128)
_PRIVATE_SIZES: Final = (128, 128, 128, 64, 64, 64, 64, 64)
_MD5_HEX = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class BoincPublicKey:
    """A project's public code-sign key: what BOINC clients learn at their first contact."""

    modulus: int
    exponent: int


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


def md5_hex(data: bytes) -> str:
    """Return what BOINC signs of a file: its MD5 in lower-case hex."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def sign_md5(md5: str, key: BoincPrivateKey) -> str:
    """Return the text of a ``.sig`` file for a file with this MD5 (lower-case hex)."""
    number = int.from_bytes(_block(md5), "big")
    signature = pow(number, key.d, key.public.modulus).to_bytes(BYTES, "big")
    text = _hex_lines(signature)
    check_boinc_signature(md5, text, key.public)  # a fault in the power shows here
    return text


def check_boinc_signature(md5: str, text: str, key: BoincPublicKey) -> None:
    """Check a signature (hostile) as BOINC's client does, but in one spelling only.

    Raises:
        TrustError: STO-K075 malformed, STO-K076 not over this MD5 by this key.
    """
    number = int.from_bytes(parse_boinc_signature(text), "big")
    if number >= key.modulus or (
        pow(number, key.exponent, key.modulus).to_bytes(BYTES, "big") != _block(md5)
    ):
        raise TrustError("STO-K076", "the BOINC signature is not over this file")


def sign_key_change(new: BoincPublicKey, old: BoincPrivateKey) -> str:
    """Return the signature by which clients accept a new key for the old one.

    A stock server keeps the old public key as ``old_key_N`` and this text as
    ``signature_stripped_N``: it covers the new key's text without the final line end.
    """
    return sign_md5(md5_hex(render_boinc_public(new).strip().encode()), old)


def render_boinc_public(key: BoincPublicKey) -> str:
    """Return the public key's text."""
    return _render_key((key.modulus, key.exponent), _PUBLIC_SIZES)


def parse_boinc_public(text: str) -> BoincPublicKey:
    """Parse a public key's text (hostile); raises ``STO-K075``."""
    modulus, exponent = _parse_key(text, _PUBLIC_SIZES)
    if modulus.bit_length() != BITS or modulus % 2 == 0 or exponent != EXPONENT:
        raise _unreadable(f"a BOINC key has {BITS} bits and the exponent {EXPONENT}")
    return BoincPublicKey(modulus, exponent)


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
    return _render_key(numbers, _PRIVATE_SIZES)


def parse_boinc_private(text: str) -> BoincPrivateKey:
    """Parse a private key's text; raises ``STO-K075``."""
    n, e, d, p, q, *_ = _parse_key(text, _PRIVATE_SIZES)
    public = parse_boinc_public(render_boinc_public(BoincPublicKey(n, e)))
    key = BoincPrivateKey(public, d, p, q)
    if min(p, q) <= 1 or p == q or p * q != n or e * d % lcm(p - 1, q - 1) != 1:
        raise _unreadable("the numbers of a BOINC private key do not fit")
    if render_boinc_private(key) != text:
        raise _unreadable("the numbers of a BOINC private key do not fit")
    return key


def parse_boinc_signature(text: str) -> bytes:
    """Return the 128 bytes of a ``.sig`` file's text (hostile); raises ``STO-K075``."""
    return _parse_lines(text, BYTES)


def render_boinc_signature(signature: bytes) -> str:
    """Return a ``.sig`` file's text of 128 bytes."""
    return _hex_lines(signature)


def _block(md5: str) -> bytes:
    """Return the padded block that is raised to the private power (RFC 8017 §9.2)."""
    if not _MD5_HEX.fullmatch(md5):
        raise _unreadable("an MD5 has 32 lower-case hex digits")
    message = md5.encode()
    filling = b"\xff" * (BYTES - 3 - len(message))
    return b"\x00\x01" + filling + b"\x00" + message


def _render_key(numbers: tuple[int, ...], sizes: tuple[int, ...]) -> str:
    """Return BOINC's text of a key."""
    pairs = zip(numbers, sizes, strict=True)
    return f"{BITS}\n" + _hex_lines(
        b"".join(n.to_bytes(size, "big") for n, size in pairs)
    )


def _parse_key(text: str, sizes: tuple[int, ...]) -> list[int]:
    """Return the numbers in BOINC's text of a key."""
    first, _, rest = text[:MAX_TEXT_BYTES].partition("\n")
    if first != str(BITS):
        raise _unreadable(f"a BOINC key begins with {BITS}")
    data = _parse_lines(rest, sum(sizes))
    numbers, at = [], 0
    for size in sizes:
        numbers.append(int.from_bytes(data[at : at + size], "big"))
        at += size
    return numbers


def _hex_lines(data: bytes) -> str:
    """Return hex in lines of 64 digits, and the full stop that ends it."""
    starts = range(0, len(data), _LINE_BYTES)
    return "".join(f"{data[at : at + _LINE_BYTES].hex()}\n" for at in starts) + ".\n"


def _parse_lines(text: str, size: int) -> bytes:
    """Return the `size` bytes of `_hex_lines`' text, in that one spelling only."""
    try:
        data = bytes.fromhex(text[:MAX_TEXT_BYTES].replace("\n", "").rstrip("."))
    except ValueError as error:
        raise _unreadable("not hex in BOINC's form") from error
    if len(data) != size or _hex_lines(data) != text:
        raise _unreadable("not in BOINC's form: lines of 64 lower-case digits, then .")
    return data


def _unreadable(message: str) -> TrustError:
    """Return the refusal of a key or signature."""
    return TrustError("STO-K075", message)

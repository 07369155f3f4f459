"""BOINC's public code-sign key and its signatures, in BOINC's own text form. Pure.

    key        1024 LF, then hex in lines of 64 digits, then a full stop
    public     modulus 128 bytes, exponent 128 bytes, big-endian
    signature  128 bytes in the same lines of hex: RSA PKCS#1 v1.5 block type 1 over the 32
               lower-case hex digits of the file's MD5, without a DigestInfo

Trust: keys and signatures are hostile text. The format has room for 1024 bits and knows MD5
only, so a signature protects no more than a program's way to a host (ADR 20); what the
program is, its digest under the project's root says.
Source: BOINC lib/crypt.cpp by way of boinc.md §3.6; checked against OpenSSL in the tests.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from stoilo.core.errors import TrustError

BITS: Final = 1024
BYTES: Final = BITS // 8
EXPONENT: Final = 65537
MAX_TEXT_BYTES: Final = 4096
_LINE_BYTES: Final = 32
_PUBLIC_SIZES: Final = (128, 128)
_MD5_HEX = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class BoincPublicKey:
    """A project's public code-sign key: what BOINC clients learn at their first contact."""

    modulus: int
    exponent: int


def md5_hex(data: bytes) -> str:
    """Return what BOINC signs of a file: its MD5 in lower-case hex."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def check_boinc_signature(md5: str, text: str, key: BoincPublicKey) -> None:
    """Check a signature (hostile) as BOINC's client does, but in one spelling only.

    Raises:
        TrustError: STO-K076 malformed, STO-K076 not over this MD5 by this key.
    """
    number = int.from_bytes(parse_boinc_signature(text), "big")
    if number >= key.modulus or (
        pow(number, key.exponent, key.modulus).to_bytes(BYTES, "big")
        != padded_block(md5)
    ):
        raise TrustError("STO-K076", "the BOINC signature is not over this file")


def key_change_md5(new: BoincPublicKey) -> str:
    """Return what the former key signs of a new one: its text without the last line end."""
    return md5_hex(render_boinc_public(new).strip().encode())


def check_key_change(new: BoincPublicKey, text: str, old: BoincPublicKey) -> None:
    """Check the signature (hostile) by which `old` names `new` as its successor.

    Raises:
        TrustError: STO-K076 malformed, STO-K076 not by that key over this one.
    """
    check_boinc_signature(key_change_md5(new), text, old)


def render_boinc_public(key: BoincPublicKey) -> str:
    """Return the public key's text."""
    return render_boinc_numbers((key.modulus, key.exponent), _PUBLIC_SIZES)


def parse_boinc_public(text: str) -> BoincPublicKey:
    """Parse a public key's text (hostile); raises ``STO-K076``."""
    modulus, exponent = parse_boinc_numbers(text, _PUBLIC_SIZES)
    if modulus.bit_length() != BITS or modulus % 2 == 0 or exponent != EXPONENT:
        raise unreadable(f"a BOINC key has {BITS} bits and the exponent {EXPONENT}")
    return BoincPublicKey(modulus, exponent)


def parse_boinc_signature(text: str) -> bytes:
    """Return the 128 bytes of a ``.sig`` file's text (hostile); raises ``STO-K076``."""
    return _parse_lines(text, BYTES)


def render_boinc_signature(signature: bytes) -> str:
    """Return a ``.sig`` file's text of 128 bytes."""
    return _hex_lines(signature)


def padded_block(md5: str) -> bytes:
    """Return the block that is raised to the private power (RFC 8017 §9.2).

    Raises:
        TrustError: STO-K076 when `md5` is none.
    """
    if not _MD5_HEX.fullmatch(md5):
        raise unreadable("an MD5 has 32 lower-case hex digits")
    message = md5.encode()
    filling = b"\xff" * (BYTES - 3 - len(message))
    return b"\x00\x01" + filling + b"\x00" + message


def render_boinc_numbers(numbers: tuple[int, ...], sizes: tuple[int, ...]) -> str:
    """Return BOINC's text of a key's numbers, each of that many bytes."""
    pairs = zip(numbers, sizes, strict=True)
    return f"{BITS}\n" + _hex_lines(
        b"".join(n.to_bytes(size, "big") for n, size in pairs)
    )


def parse_boinc_numbers(text: str, sizes: tuple[int, ...]) -> list[int]:
    """Return the numbers in BOINC's text of a key (hostile); raises ``STO-K076``."""
    first, _, rest = text[:MAX_TEXT_BYTES].partition("\n")
    if first != str(BITS):
        raise unreadable(f"a BOINC key begins with {BITS}")
    data = _parse_lines(rest, sum(sizes))
    numbers, at = [], 0
    for size in sizes:
        numbers.append(int.from_bytes(data[at : at + size], "big"))
        at += size
    return numbers


def unreadable(message: str) -> TrustError:
    """Return ``STO-K076``: the refusal of a key or signature."""
    return TrustError("STO-K076", message)


def _hex_lines(data: bytes) -> str:
    """Return hex in lines of 64 digits, and the full stop that ends it."""
    starts = range(0, len(data), _LINE_BYTES)
    return "".join(f"{data[at : at + _LINE_BYTES].hex()}\n" for at in starts) + ".\n"


def _parse_lines(text: str, size: int) -> bytes:
    """Return the `size` bytes of `_hex_lines`' text, in that one spelling only."""
    try:
        data = bytes.fromhex(text[:MAX_TEXT_BYTES].replace("\n", "").rstrip("."))
    except ValueError as error:
        raise unreadable("not hex in BOINC's form") from error
    if len(data) != size or _hex_lines(data) != text:
        raise unreadable("not in BOINC's form: lines of 64 lower-case digits, then .")
    return data

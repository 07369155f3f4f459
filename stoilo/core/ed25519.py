"""Ed25519 keys as configuration: checked once when loaded, then only used.

OpenSSL verifies against small-order public keys, for which one signature fits *every*
message (signing-audit §2.2), so such keys are refused here, where keys enter; no key is
ever taken from a message. Signing and verifying itself is the `cryptography` package.
Source: RFC 8032 §5.1.3 (point decoding).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from stoilo.core.errors import TrustError


KEY_BYTES = 32
SIGNATURE_BYTES = 64
MAX_PEM_BYTES = 16 * 1024

PRIME = 2**255 - 19
_D = (-121665 * pow(121666, PRIME - 2, PRIME)) % PRIME
_SQRT_MINUS_ONE = pow(2, (PRIME - 1) // 4, PRIME)


@dataclass(frozen=True)
class PublicKey:
    """A checked Ed25519 public key; make one with `load_public_key` only."""

    raw: bytes

    @cached_property
    def _key(self) -> Ed25519PublicKey:
        return Ed25519PublicKey.from_public_bytes(self.raw)

    @property
    def crypto(self) -> Ed25519PublicKey:
        """The key as the `cryptography` package has it."""
        return self._key

    @property
    def identity(self) -> bytes:
        """What makes two keys the same key: the 32 bytes."""
        return self.raw

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether `signature` (hostile) over `message` was made by this key."""
        if len(signature) != SIGNATURE_BYTES:
            return False
        try:
            self._key.verify(signature, message)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class PrivateKey:
    """A signing key; exists only in signer processes and offline tools."""

    key: Ed25519PrivateKey

    @classmethod
    def generate(cls) -> PrivateKey:
        """Return a new key from the system's random source."""
        return cls(Ed25519PrivateKey.generate())

    @property
    def public(self) -> PublicKey:
        """The matching public key."""
        return PublicKey(self.key.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """Return the 64-byte signature over `message`."""
        return self.key.sign(message)

    def pem(self) -> bytes:
        """Return unencrypted PKCS#8; write it to 0600 files only."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def load_private_key(pem: bytes) -> PrivateKey:
    """Parse an unencrypted PKCS#8 Ed25519 key or raise ``STO-K001``."""
    try:
        key = load_pem_private_key(pem[:MAX_PEM_BYTES], None)
    except (ValueError, TypeError) as error:
        raise TrustError("STO-K001", "a private key file cannot be read") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise TrustError("STO-K001", "a private key is not an Ed25519 key")
    return PrivateKey(key)


def parse_public_key(text: str) -> PublicKey:
    """Return the key written as 64 hex digits, checked as `load_public_key` does."""
    try:
        raw = bytes.fromhex(text)
    except ValueError as error:
        raise TrustError("STO-K001", "a public key must be 64 hex digits") from error
    return load_public_key(raw)


def load_public_key(raw: bytes) -> PublicKey:
    """Return `raw` as a usable key.

    Raises:
        TrustError: STO-K001 when it is not 32 bytes naming a point in canonical form,
            STO-K002 when the point has small order.
    """
    if len(raw) != KEY_BYTES:
        raise TrustError("STO-K001", "an Ed25519 public key has 32 bytes")
    point = _decompress(raw)
    if point is None:
        raise TrustError("STO-K001", "a public key is not a point of the curve")
    for _ in range(3):
        point = _double(point)
    if point == (0, 1):
        raise TrustError(
            "STO-K002",
            "a public key has small order: it would accept forged signatures",
        )
    return PublicKey(bytes(raw))


def _decompress(raw: bytes) -> tuple[int, int] | None:
    """Return the affine point, or None when `raw` is not a canonical encoding."""
    number = int.from_bytes(raw, "little")
    sign, y = number >> 255, number & ((1 << 255) - 1)
    if y >= PRIME:
        return None
    y_squared = y * y % PRIME
    x_squared = (y_squared - 1) * _inverse(_D * y_squared + 1) % PRIME
    x = pow(x_squared, (PRIME + 3) // 8, PRIME)
    if (x * x - x_squared) % PRIME:
        x = x * _SQRT_MINUS_ONE % PRIME
    if (x * x - x_squared) % PRIME or (x == 0 and sign):
        return None
    return (PRIME - x if x & 1 != sign else x, y)


def _double(point: tuple[int, int]) -> tuple[int, int]:
    """Return twice `point` by the complete affine addition law."""
    x, y = point
    product = _D * x * x % PRIME * y % PRIME * y % PRIME
    return (
        2 * x * y * _inverse(1 + product) % PRIME,
        (y * y + x * x) * _inverse(1 - product) % PRIME,
    )


def _inverse(number: int) -> int:
    """Return the multiplicative inverse modulo the field's prime."""
    return pow(number, PRIME - 2, PRIME)

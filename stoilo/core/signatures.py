"""Ed25519 keys, and DSSE v1.0.2: sign bytes, verify bytes, parse only what was verified.

Keys are configuration, checked once when loaded; none is ever taken from a message.
Signing and verifying itself is the `cryptography` package. A threshold counts distinct
keys, not signatures; both base64 alphabets are read. Trust: envelopes are hostile until
`verify_envelope` returned the payload.
Source: RFC 8032 §5.1.3 (point decoding); secure-systems-lab/dsse protocol.md.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import msgspec
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
from stoilo.core.limits import BOUNDS
from stoilo.core.strict_json import Json, parse_strict_json

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    # OpenSSL verifies against small-order keys, and one signature fits *every* message then.
    if len(raw) != KEY_BYTES:
        raise TrustError("STO-K001", "an Ed25519 public key has 32 bytes")
    point = _decompress(raw)
    if point is None:
        raise TrustError("STO-K001", "a public key is not a point of the curve")
    for _ in range(3):  # times 8, the cofactor: only small-order points become neutral
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


IN_TOTO_PAYLOAD = "application/vnd.in-toto+json"
MAX_SIGNATURES = 16
MAX_SIGNATURE_BYTES = 5 * 1024

_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")


class SigningKey(Protocol):
    """A private key."""

    def sign(self, message: bytes) -> bytes:
        """Return the signature over `message`."""


@dataclass(frozen=True, slots=True)
class Signature:
    """One signature; `keyid` is a hint for humans."""

    keyid: str
    sig: bytes


@dataclass(frozen=True, slots=True)
class Envelope:
    """A parsed, *unverified* envelope."""

    payload_type: str
    payload: bytes
    signatures: tuple[Signature, ...]


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return the pre-authentication encoding: what is signed and what the log names."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def sign_envelope(
    payload: bytes, keys: Sequence[tuple[str, SigningKey]], payload_type: str
) -> Envelope:
    """Return an envelope over `payload` signed by each (key id, key)."""
    message = pae(payload_type, payload)
    signatures = tuple(Signature(keyid, key.sign(message)) for keyid, key in keys)
    return Envelope(payload_type, payload, signatures)


def render_envelope(envelope: Envelope) -> bytes:
    """Return the JSON form of `envelope`."""
    return msgspec.json.encode(
        {
            "payloadType": envelope.payload_type,
            "payload": base64.b64encode(envelope.payload).decode(),
            "signatures": [
                {"keyid": one.keyid, "sig": base64.b64encode(one.sig).decode()}
                for one in envelope.signatures
            ],
        }
    )


def parse_envelope(data: bytes) -> Envelope:
    """Parse `data` (hostile) without judging its signatures.

    Raises:
        TrustError: the codes of `parse_strict_json`; STO-A002 for a wrong shape.
    """
    document = parse_strict_json(
        data, max_bytes=BOUNDS.envelope_bytes, what="admission envelope"
    )
    if not isinstance(document, dict):
        raise _misshapen("is not an object")
    signatures = document.get("signatures")
    if not isinstance(signatures, list) or len(signatures) > MAX_SIGNATURES:
        raise _misshapen(f"needs a list of at most {MAX_SIGNATURES} signatures")
    return Envelope(
        payload_type=_text(document, "payloadType"),
        payload=_decode_base64(_text(document, "payload")),
        signatures=tuple(_parse_signature(one) for one in signatures),
    )


def verify_envelope(
    envelope: Envelope,
    keys: Sequence[PublicKey],
    *,
    threshold: int = 1,
    payload_type: str = IN_TOTO_PAYLOAD,
) -> bytes:
    """Return the payload once `threshold` distinct `keys` have signed it.

    Raises:
        TrustError: STO-A004 another payload type, STO-A005 no signature at all,
            STO-A006 none by a known key, STO-A007 fewer distinct keys than `threshold`.
    """
    if envelope.payload_type != payload_type:
        raise TrustError("STO-A004", "the envelope holds another type of payload")
    if not envelope.signatures:
        raise TrustError("STO-A005", "the envelope is not signed")
    message = pae(envelope.payload_type, envelope.payload)
    signers = {
        key.identity
        for key in keys
        if any(key.verifies(one.sig, message) for one in envelope.signatures)
    }
    if not signers:
        raise TrustError("STO-A006", "no signature is by a key that may sign this")
    if len(signers) < max(threshold, 1):
        raise TrustError(
            "STO-A007",
            f"{len(signers)} distinct key(s) signed, {threshold} are needed",
        )
    return envelope.payload


def _parse_signature(value: Json) -> Signature:
    """Read one element of ``signatures``."""
    if not isinstance(value, dict):
        raise _misshapen("holds a signature that is not an object")
    keyid = value.get("keyid", "")
    if not isinstance(keyid, str) or len(keyid) > BOUNDS.name_chars:
        raise _misshapen("holds a bad key id")
    sig = _decode_base64(_text(value, "sig"))
    if len(sig) > MAX_SIGNATURE_BYTES:
        raise _misshapen("holds an oversized signature")
    return Signature(keyid, sig)


def _text(document: dict[str, Json], name: str) -> str:
    """Return the string member `name`."""
    value = document.get(name)
    if not isinstance(value, str):
        raise _misshapen(f"lacks the text {name!r}")
    return value


def _decode_base64(text: str) -> bytes:
    """Decode the standard or the URL-safe alphabet, padded or not, nothing else."""
    standard = text.replace("-", "+").replace("_", "/")
    if not _BASE64.fullmatch(standard):
        raise _misshapen("holds bad base64")
    bare = standard.rstrip("=")
    try:
        return base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except binascii.Error as error:
        raise _misshapen("holds bad base64") from error


def _misshapen(detail: str) -> TrustError:
    """Return the error for an envelope of the wrong shape."""
    return TrustError("STO-A002", f"the admission envelope {detail}")

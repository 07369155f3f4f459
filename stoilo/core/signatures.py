"""What is signed: Ed25519 keys, DSSE v1.0.2 envelopes, and the strict JSON inside and around.

Keys are configuration, checked once when loaded; none is ever taken from a message.
Signing and verifying itself is the `cryptography` package. A threshold counts distinct
keys, not signatures; both base64 alphabets are read. Trust: envelopes are hostile until
`verify_envelope` returned the payload.
Source: RFC 8032 §5.1.3 (point decoding); secure-systems-lab/dsse protocol.md.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, NoReturn, Protocol

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
    def crypto(self) -> Ed25519PublicKey:
        """The key as the `cryptography` package has it."""
        return Ed25519PublicKey.from_public_bytes(self.raw)

    @property
    def identity(self) -> bytes:
        """What makes two keys the same key: the 32 bytes."""
        return self.raw

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether `signature` (hostile) over `message` was made by this key."""
        if len(signature) != SIGNATURE_BYTES:
            return False
        try:
            self.crypto.verify(signature, message)
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
            when the point has small order.
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
            "STO-K001",
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
    return pow(number, PRIME - 2, PRIME)


# JSON from another party, read strictly: one meaning per text, or a refusal --------------
#
# Two parsers that disagree about a signed text are an attack (signing-audit §2.1), so
# what they may disagree about is refused: duplicate keys, floats and NaN, surrogates,
# integers beyond 64 bits, byte order marks, text after the value. Size and depth are
# bounded before the parser runs. Trust: the input is hostile; the output holds only dict,
# list, str, int, bool and None.


Json = None | bool | int | str | list["Json"] | dict[str, "Json"]

MAX_DEPTH = 16
MAX_INTEGER_CHARS = 19  # fits a signed 64-bit integer with its sign

# An unterminated string runs to the end of the text: without that branch the search
# would start again at every quote, and time would grow with the square of the size.
_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKETS = re.compile(rb"[\[\]{}]")
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


def parse_strict_json(data: bytes, *, max_bytes: int, what: str) -> Json:
    """Return the value of `data` (hostile, at most `max_bytes`).

    Args:
        data: UTF-8 JSON text.
        max_bytes: largest size accepted, bytes; checked first.
        what: the document's name in messages, for example ``statement``.

    Raises:
        TrustError: STO-A002 too large, not JSON, duplicate keys,
            a number that is not a small integer, nested too deep.
    """
    if len(data) > max_bytes:
        raise TrustError("STO-A002", f"the {what} is larger than {max_bytes} bytes")
    _check_depth(data, what)
    if _SURROGATE_ESCAPE.search(data):
        raise TrustError("STO-A002", f"the {what} escapes a surrogate code point")
    try:
        value: Json = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique_pairs,
            parse_float=_refuse_number,
            parse_constant=_refuse_number,
            parse_int=_small_integer,
        )
    except (ValueError, RecursionError) as error:
        raise TrustError("STO-A002", f"the {what} is not strict JSON") from error
    return value


def _check_depth(data: bytes, what: str) -> None:
    """Refuse nesting past `MAX_DEPTH` before any recursive parser sees the text."""
    depth = 0
    for bracket in _BRACKETS.findall(_STRINGS.sub(b"", data)):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            raise TrustError(
                "STO-A002", f"the {what} nests deeper than {MAX_DEPTH} levels"
            )


def _unique_pairs(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """Build an object, refusing a key that occurs twice."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise TrustError("STO-A002", "a JSON object names one key twice")
    return members


def _refuse_number(text: str) -> NoReturn:
    """Refuse floats, exponents, NaN and infinities: none has one exact meaning."""
    raise TrustError("STO-A002", f"only integers are allowed, found {text[:20]!r}")


def _small_integer(text: str) -> int:
    """Return an integer of at most 64 bits."""
    if len(text) > MAX_INTEGER_CHARS:
        raise TrustError("STO-A002", "an integer is longer than 64 bits")
    return int(text)


# Envelopes -----------------------------------------------------------------------------


IN_TOTO_PAYLOAD = "application/vnd.in-toto+json"
MAX_SIGNATURES = 16
MAX_SIGNATURE_CHARS = 4 * 5 * 1024 // 3  # in base64, of 5 KiB

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


class _WireSignature(msgspec.Struct):
    sig: Annotated[str, msgspec.Meta(max_length=MAX_SIGNATURE_CHARS)]
    keyid: Annotated[str, msgspec.Meta(max_length=BOUNDS.name_chars)] = ""


class _WireEnvelope(msgspec.Struct, rename="camel"):
    payload_type: str
    payload: str
    signatures: Annotated[
        tuple[_WireSignature, ...], msgspec.Meta(max_length=MAX_SIGNATURES)
    ]


def parse_envelope(data: bytes) -> Envelope:
    """Parse `data` (hostile) without judging its signatures.

    Raises:
        TrustError: the codes of `parse_strict_json`; STO-A002 for a wrong shape.
    """
    document = parse_strict_json(
        data, max_bytes=BOUNDS.envelope_bytes, what="admission envelope"
    )
    try:
        wire = msgspec.convert(document, _WireEnvelope)
    except msgspec.ValidationError as error:
        raise _misshapen(f"is malformed: {error}") from error
    return Envelope(
        payload_type=wire.payload_type,
        payload=_decode_base64(wire.payload),
        signatures=tuple(
            Signature(one.keyid, _decode_base64(one.sig)) for one in wire.signatures
        ),
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
        TrustError: STO-A004 another payload type, STO-A007 no signature at all,
            STO-A006 none by a known key, STO-A007 fewer distinct keys than `threshold`.
    """
    if envelope.payload_type != payload_type:
        raise TrustError("STO-A004", "the envelope holds another type of payload")
    if not envelope.signatures:
        raise TrustError("STO-A007", "the envelope is not signed")
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
    return TrustError("STO-A002", f"the admission envelope {detail}")

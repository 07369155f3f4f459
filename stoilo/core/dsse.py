"""DSSE v1.0.2: sign bytes, verify bytes, parse exactly the bytes that were verified.

Source: secure-systems-lab/dsse protocol.md. The key id is an unauthenticated hint and
decides nothing; a threshold counts distinct keys, not signatures; both base64 alphabets
are read. Trust: envelopes are hostile until `verify_envelope` returned the payload.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import msgspec

from stoilo.core.errors import TrustError
from stoilo.core.limits import BOUNDS
from stoilo.core.strict_json import Json, parse_strict_json

if TYPE_CHECKING:
    from collections.abc import Sequence


IN_TOTO_PAYLOAD = "application/vnd.in-toto+json"
MAX_SIGNATURES = 16
MAX_SIGNATURE_BYTES = 5 * 1024

_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")


class VerifyingKey(Protocol):
    """A public key: configuration, never taken from a message."""

    @property
    def identity(self) -> bytes:
        """What makes two keys the same key."""

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether `signature` over `message` was made by this key."""


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
    keys: Sequence[VerifyingKey],
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

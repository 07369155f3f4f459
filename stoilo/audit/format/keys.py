"""Keys of signed notes: names, types, verifier keys and what makes one weak.

Format: c2sp.org/signed-note v1.0.0 (verifier keys) and tlog-cosignature v1.0.1. Keys are
configuration: they are never taken from a message. A key's name and four-byte id only
select it among signatures and prove nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

from stoilo.core.errors import TrustError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey


KEY_ID_BYTES = 4
ED25519_KEY_BYTES = 32
ML_DSA_KEY_BYTES = 1312
ML_DSA_RHO_BYTES = 32

CosignerKey: TypeAlias = "Ed25519PrivateKey | MLDSA44PrivateKey"
"""What a witness signs with."""

MAX_NAME_BYTES = 255  # what an ML-DSA cosignature's structure can hold
_NAME = re.compile(r"[^\s+]{1,256}")
_PRIME = 2**255 - 19
# y coordinates of the eight points of small order (RFC 8032 curve).
_SMALL_ORDER = frozenset(
    {
        0,
        1,
        _PRIME - 1,
        0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826,
        0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7,
    }
)


class KeyType(IntEnum):
    """The signature type byte of a note key."""

    ED25519 = 0x01
    COSIGNATURE = 0x04
    ML_DSA_44 = 0x06


_KEY_BYTES = {
    KeyType.ED25519: ED25519_KEY_BYTES,
    KeyType.COSIGNATURE: ED25519_KEY_BYTES,
    KeyType.ML_DSA_44: ML_DSA_KEY_BYTES,
}


@dataclass(frozen=True, slots=True)
class VerifierKey:
    """A public key with its name, from configuration.

    Attributes:
        name: schema-less URL; for a log, its origin.
        kind: signature type.
        public: raw public key, 32 or 1312 bytes.
    """

    name: str
    kind: KeyType
    public: bytes

    @property
    def key_id(self) -> bytes:
        """Four bytes that select this key among signatures; not a fingerprint."""
        head = self.name.encode() + b"\n" + bytes([self.kind])
        return hashlib.sha256(head + self.public).digest()[:KEY_ID_BYTES]


def decode_base64(text: str, *, code: str = "STO-L010") -> bytes:
    """Return the bytes of canonical base64, or raise TrustError with `code`."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise TrustError(code, "not valid base64") from None
    if base64.b64encode(data).decode() != text:
        raise TrustError(code, "not canonical base64")
    return data


def check_name(name: str, *, code: str = "STO-L010") -> str:
    """Return a key name without spaces, plus signs, control or invisible characters.

    Stricter than signed-note, which lets the controls U+0080…U+009F through: names are
    shown, also those of strangers, and a terminal would obey them.
    """
    text = name.encode(errors="replace")
    if (
        not _NAME.fullmatch(name)
        or not name.isprintable()
        or len(text) > MAX_NAME_BYTES
        or text.decode() != name  # half of a surrogate pair, from a damaged file
    ):
        raise TrustError(code, f"not a key name: {name[:64]!r}")
    return name


def check_public_key(public: bytes) -> None:
    """Refuse Ed25519 keys of small order or not canonical, when configured.

    Such keys verify for any message with signatures anyone can make.

    Raises:
        TrustError: ``STO-L004``.
    """
    height = int.from_bytes(public, "little") & (2**255 - 1)
    if len(public) != ED25519_KEY_BYTES or height >= _PRIME or height in _SMALL_ORDER:
        raise TrustError("STO-L004", "the Ed25519 public key is weak or malformed")


def make_key(name: str, kind: KeyType, public: bytes) -> VerifierKey:
    """Return a checked key; raises ``STO-L004``."""
    check_name(name, code="STO-L004")
    if len(public) != _KEY_BYTES[kind]:
        raise TrustError("STO-L004", f"a key of type {kind:#04x} has the wrong length")
    if kind is not KeyType.ML_DSA_44:
        check_public_key(public)
    elif not any(public[ML_DSA_RHO_BYTES:]):
        raise TrustError(
            "STO-L004", "anybody can sign for this ML-DSA key (t1 is zero)"
        )
    return VerifierKey(name, kind, public)


def parse_vkey(text: str) -> VerifierKey:
    """Parse ``name+hex(id)+base64(type ‖ key)``; raises ``STO-L004``."""
    parts = text.split("+", 2)
    if len(parts) != 3:  # noqa: PLR2004 - three fields by format
        raise TrustError("STO-L004", "a verifier key looks like name+id+base64")
    name, key_id, encoded = parts
    material = decode_base64(encoded, code="STO-L004")
    if not material or material[0] not in set(KeyType):
        raise TrustError("STO-L004", "the verifier key has an unknown type")
    key = make_key(name, KeyType(material[0]), material[1:])
    if key.key_id.hex() != key_id:
        raise TrustError("STO-L004", "the verifier key's id does not match its key")
    return key


def render_vkey(key: VerifierKey) -> str:
    """Return the text form of a verifier key."""
    material = base64.b64encode(bytes([key.kind]) + key.public).decode()
    return f"{key.name}+{key.key_id.hex()}+{material}"


def cosigner_type(private: CosignerKey) -> KeyType:
    """Return the signature type in which a private key cosigns."""
    raw = private.public_key().public_bytes_raw()
    return KeyType.COSIGNATURE if len(raw) == ED25519_KEY_BYTES else KeyType.ML_DSA_44


def private_vkey(name: str, kind: KeyType, private: CosignerKey) -> VerifierKey:
    """Return the verifier key that belongs to a private key; raises ``STO-L004``."""
    return make_key(name, kind, private.public_key().public_bytes_raw())

"""C2SP signed notes: a text, a blank line, and signatures by named keys.

Format: c2sp.org/signed-note v1.0.0 and tlog-cosignature v1.0.1. Notes are hostile bytes
until a key that the reader was configured with has verified. Keys are configuration and
never taken from a message: a key's name and four-byte id only select it among signatures
and prove nothing.

A cosignature is by an Ed25519 key (type 04, over the note's text) or by an ML-DSA-44 key
(type 06, over a structure that also binds the cosigner's name); both state a time.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PublicKey

from stoilo.audit.format.merkle import (
    MAX_ORIGIN_BYTES,
    Checkpoint,
    decode_base64,
    parse_checkpoint,
)
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
    """A public key with its name, from configuration."""

    name: str  # schema-less URL; for a log, its origin
    kind: KeyType  # signature type
    public: bytes  # raw public key, 32 or 1312 bytes

    @property
    def key_id(self) -> bytes:
        """Four bytes that select this key among signatures; not a fingerprint."""
        head = self.name.encode() + b"\n" + bytes([self.kind])
        return hashlib.sha256(head + self.public).digest()[:KEY_ID_BYTES]


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
        TrustError: ``STO-K001``.
    """
    height = int.from_bytes(public, "little") & (2**255 - 1)
    if len(public) != ED25519_KEY_BYTES or height >= _PRIME or height in _SMALL_ORDER:
        raise TrustError("STO-K001", "the Ed25519 public key is weak or malformed")


def make_key(name: str, kind: KeyType, public: bytes) -> VerifierKey:
    """Return a checked key; raises ``STO-K001``."""
    check_name(name, code="STO-K001")
    if len(public) != _KEY_BYTES[kind]:
        raise TrustError("STO-K001", f"a key of type {kind:#04x} has the wrong length")
    if kind is not KeyType.ML_DSA_44:
        check_public_key(public)
    elif not any(public[ML_DSA_RHO_BYTES:]):
        raise TrustError(
            "STO-K001", "anybody can sign for this ML-DSA key (t1 is zero)"
        )
    return VerifierKey(name, kind, public)


def parse_vkey(text: str) -> VerifierKey:
    """Parse ``name+hex(id)+base64(type ‖ key)``; raises ``STO-K001``."""
    parts = text.split("+", 2)
    if len(parts) != 3:  # noqa: PLR2004 - three fields by format
        raise TrustError("STO-K001", "a verifier key looks like name+id+base64")
    name, key_id, encoded = parts
    material = decode_base64(encoded, code="STO-K001")
    if not material or material[0] not in set(KeyType):
        raise TrustError("STO-K001", "the verifier key has an unknown type")
    key = make_key(name, KeyType(material[0]), material[1:])
    if key.key_id.hex() != key_id:
        raise TrustError("STO-K001", "the verifier key's id does not match its key")
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
    """Return the verifier key that belongs to a private key; raises ``STO-K001``."""
    return make_key(name, kind, private.public_key().public_bytes_raw())


MAX_NOTE_BYTES = 128 * 1024  # sixteen signatures of 5 kB, in base64
MAX_SIGNATURES = 32
ED25519_SIGNATURE_BYTES = 64
ML_DSA_SIGNATURE_BYTES = 2420
TIME_BYTES = 8
MAX_TIME = 2**63 - 1

_CONTROL = re.compile(rb"[\x00-\x09\x0b-\x1f]")
_DASH = "\u2014 "
_SUBTREE_LABEL = b"subtree/v1\n\0"
_SIGNATURE_BYTES = {
    KeyType.ED25519: ED25519_SIGNATURE_BYTES,
    KeyType.COSIGNATURE: ED25519_SIGNATURE_BYTES,
    KeyType.ML_DSA_44: ML_DSA_SIGNATURE_BYTES,
}


@dataclass(frozen=True, slots=True)
class NoteSignature:
    """One signature line, unverified."""

    name: str
    key_id: bytes
    signature: bytes

    @property
    def time(self) -> int:
        """POSIX seconds of a cosignature; meaningless before verification."""
        return int.from_bytes(self.signature[:TIME_BYTES], "big")


@dataclass(frozen=True, slots=True)
class Note:
    """A parsed note: text with its final newline, and signatures in order."""

    text: bytes
    signatures: tuple[NoteSignature, ...]


def parse_note(data: bytes) -> Note:
    """Split hostile bytes into text and signatures; verifies nothing.

    Raises:
        TrustError: ``STO-L010``.
    """
    if len(data) > MAX_NOTE_BYTES:
        raise TrustError("STO-L010", f"a note has at most {MAX_NOTE_BYTES} bytes")
    if _CONTROL.search(data):
        raise TrustError("STO-L010", "the note holds control characters")
    split = data.rfind(b"\n\n")
    if split < 0 or not data.endswith(b"\n"):
        raise TrustError("STO-L010", "the note has no signatures")
    try:
        data[: split + 1].decode()
        lines = data[split + 2 : -1].decode().split("\n")
    except UnicodeDecodeError:
        raise TrustError("STO-L010", "the note is not UTF-8") from None
    if len(lines) > MAX_SIGNATURES:
        raise TrustError("STO-L010", f"a note has at most {MAX_SIGNATURES} signatures")
    return Note(data[: split + 1], tuple(_parse_signature(line) for line in lines))


def _parse_signature(line: str) -> NoteSignature:
    name, _, encoded = line.removeprefix(_DASH).partition(" ")
    if not line.startswith(_DASH):
        raise TrustError("STO-L010", "a signature line must start with a dash")
    data = decode_base64(encoded)
    if len(data) <= KEY_ID_BYTES:
        raise TrustError("STO-L010", "a signature is too short")
    return NoteSignature(check_name(name), data[:KEY_ID_BYTES], data[KEY_ID_BYTES:])


def render_note(note: Note) -> bytes:
    """Return the bytes of a signed note."""
    lines = [
        f"{_DASH}{item.name} "
        f"{base64.b64encode(item.key_id + item.signature).decode()}\n"
        for item in note.signatures
    ]
    return note.text + b"\n" + "".join(lines).encode()


def verify_signature(text: bytes, item: NoteSignature, key: VerifierKey) -> None:
    """Check one signature or cosignature over `text`; the name selected `key`.

    Raises:
        TrustError: ``STO-L012`` when it does not verify, ``STO-L010`` when an ML-DSA
            key signed what is no checkpoint, ``STO-L016`` when this machine's
            cryptography has no ML-DSA.
    """
    timed = key.kind is not KeyType.ED25519
    signature = item.signature[TIME_BYTES:] if timed else item.signature
    if len(signature) != _SIGNATURE_BYTES[key.kind]:
        raise TrustError("STO-L012", f"the signature of {key.name} is malformed")
    message = _signed_message(text, key, item.time if timed else 0)
    try:
        if key.kind is KeyType.ML_DSA_44:
            MLDSA44PublicKey.from_public_bytes(key.public).verify(signature, message)
        else:
            Ed25519PublicKey.from_public_bytes(key.public).verify(signature, message)
    except (InvalidSignature, ValueError):
        raise TrustError(
            "STO-L012", f"the signature of {key.name} does not verify"
        ) from None
    except UnsupportedAlgorithm:
        raise TrustError(
            "STO-L016", f"{key.name} signs with ML-DSA, which is missing here"
        ) from None


def _signed_message(text: bytes, key: VerifierKey, time: int) -> bytes:
    """Return what `key` signs for a note of `text`."""
    match key.kind:
        case KeyType.ED25519:
            return text
        case KeyType.COSIGNATURE:
            return cosignature_message(text, time)
        case KeyType.ML_DSA_44:
            return subtree_message(key.name, time, 0, parse_checkpoint(text))


def cosignature_message(text: bytes, time: int) -> bytes:
    """Return what an Ed25519 cosigner signs; `time` in POSIX seconds."""
    _check_time(time)
    return b"cosignature/v1\ntime %d\n" % time + text


def subtree_message(
    name: str,  # the cosigner's name, which this form binds
    # POSIX seconds; 0 says nothing about the time, and must be 0 for a subtree
    time: int,
    start: int,  # first leaf of the subtree; 0 for a checkpoint
    tree: Checkpoint,  # the log's name, the subtree's end (its size) and root
) -> bytes:
    """Return what an ML-DSA cosigner signs: ``cosigned_message`` of tlog-cosignature.

    Raises:
        TrustError: ``STO-L012`` when the form cannot hold it.
    """
    _check_time(time)
    cosigner, origin = name.encode(), tree.origin.encode()
    if not (0 < len(cosigner) <= MAX_ORIGIN_BYTES and 0 <= start <= tree.size):
        raise TrustError("STO-L012", "an ML-DSA cosignature cannot state this")
    if start and time:
        raise TrustError("STO-L012", "a cosignature of a subtree states no time")
    return b"".join(
        (
            _SUBTREE_LABEL,
            bytes([len(cosigner)]) + cosigner,
            time.to_bytes(TIME_BYTES, "big"),
            bytes([len(origin)]) + origin,
            start.to_bytes(8, "big") + tree.size.to_bytes(8, "big"),
            tree.root,
        )
    )


def _check_time(time: int) -> None:
    if not 0 <= time <= MAX_TIME:
        raise TrustError("STO-L012", "a cosignature's time is out of range")


def sign_note(text: bytes, name: str, private: Ed25519PrivateKey) -> NoteSignature:
    """Return a type 01 signature of `text` by key `name`."""
    key = private_vkey(name, KeyType.ED25519, private)
    return NoteSignature(name, key.key_id, private.sign(text))


def cosign_note(
    text: bytes,
    name: str,  # the cosigner's name
    private: CosignerKey,
    time: int,  # POSIX seconds; a witness never states 0
) -> NoteSignature:
    """Return a cosignature of checkpoint `text`: type 04 or, by an ML-DSA key, 06.

    Raises:
        TrustError: ``STO-L012`` or ``STO-L010`` for what cannot be cosigned.
    """
    key = private_vkey(name, cosigner_type(private), private)
    signature = private.sign(_signed_message(text, key, time))
    return NoteSignature(name, key.key_id, time.to_bytes(TIME_BYTES, "big") + signature)

"""Private note keys as text: ``PRIVATE+KEY+name+id+base64(type ‖ seed)``.

The form is that of Go's ``sumdb/note`` for type 01; types 04 and 06 differ in the type
byte, and the seed is always 32 bytes. For tests, and for whoever runs a witness with
other software: the product keeps its own keys as PEM files.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey

from stoilo.audit.format.merkle import decode_base64
from stoilo.audit.format.note import CosignerKey, KeyType, VerifierKey, private_vkey
from stoilo.core.errors import TrustError

__all__ = ["MAX_PRIVATE_TEXT", "NoteKey", "parse_private_key", "render_private_key"]

MAX_PRIVATE_TEXT = 1024
SEED_BYTES = 32
_FORM = re.compile(r"PRIVATE\+KEY\+([^+]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/]+={0,2})")


@dataclass(frozen=True, slots=True)
class NoteKey:
    """A private key with its name.

    Attributes:
        vkey: its public side: name, type, key.
        private: signs; not shown by ``repr``.
        seed: 32 bytes from which `private` is derived; not shown either.
    """

    vkey: VerifierKey
    private: CosignerKey = field(repr=False)
    seed: bytes = field(repr=False)

    @classmethod
    def from_seed(cls, name: str, kind: KeyType, seed: bytes) -> NoteKey:
        """Return the key of a 32-byte seed; raises ``STO-K001`` or ``STO-L016``."""
        if len(seed) != SEED_BYTES:
            raise TrustError("STO-K001", "a private key's seed has 32 bytes")
        private: CosignerKey
        try:
            if kind is KeyType.ML_DSA_44:
                private = MLDSA44PrivateKey.from_seed_bytes(seed)
            else:
                private = Ed25519PrivateKey.from_private_bytes(seed)
        except UnsupportedAlgorithm:
            raise TrustError("STO-L016", "ML-DSA is missing here") from None
        return cls(private_vkey(name, kind, private), private, seed)


def parse_private_key(text: str) -> NoteKey:
    """Parse a private key's text; a final newline is allowed.

    Raises:
        TrustError: ``STO-K001``, never quoting the text.
    """
    match = _FORM.fullmatch(text.removesuffix("\n")[: MAX_PRIVATE_TEXT + 1])
    if match is None:
        raise TrustError("STO-K001", "a private key looks like PRIVATE+KEY+name+id+…")
    name, key_id, encoded = match.groups()
    material = decode_base64(encoded, code="STO-K001")
    if material[0] not in set(KeyType):
        raise TrustError("STO-K001", "the private key has an unknown type")
    key = NoteKey.from_seed(name, KeyType(material[0]), material[1:])
    if key.vkey.key_id.hex() != key_id:
        raise TrustError("STO-K001", "the private key's id does not match its key")
    return key


def render_private_key(key: NoteKey) -> str:
    """Return the secret text of a key, without a newline."""
    material = base64.b64encode(bytes([key.vkey.kind]) + key.seed).decode()
    return f"PRIVATE+KEY+{key.vkey.name}+{key.vkey.key_id.hex()}+{material}"

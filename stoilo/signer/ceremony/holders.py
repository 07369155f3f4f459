"""Whose key is whose: a role's keys with the names that people know them by.

The name travels inside the metadata, beside the key, so that every later ceremony can say
who signed and who is missing; key ids mean nothing to people. A name proves nothing: the
key does, and its fingerprint was compared when the role was made.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Final

from securesystemslib.signer import Key, SSlibKey

from stoilo.core.digests import content_digest
from stoilo.core.ed25519 import PublicKey, parse_public_key
from stoilo.core.errors import TrustError

__all__ = [
    "NAME_FIELD",
    "KeyHolder",
    "RoleSet",
    "group_digest",
    "holder_of",
    "tuf_key",
]

NAME_FIELD: Final = "x-stoilo-name"
MAX_NAME = 64
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def group_digest(digest: str) -> str:
    """Return a SHA-256 in groups of four digits, to be compared aloud."""
    groups = [digest[at : at + 4] for at in range(0, len(digest), 4)]
    lines = [" ".join(groups[at : at + 4]) for at in range(0, len(groups), 4)]
    return "  ".join(lines)


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """One key of a role, and the name of who holds it."""

    name: str
    key: PublicKey

    def __post_init__(self) -> None:
        """Refuse names that ``keygen`` does not make; raises ``STO-K050``.

        No letter looks like another's, and no name like a name with a fingerprint.
        """
        if not _NAME.fullmatch(self.name):
            raise TrustError(
                "STO-K050",
                f"a key holder's name has 1 to {MAX_NAME} letters a-z, digits, '.', '_', '-'",
            )

    @property
    def short(self) -> str:
        """The first groups of the key's fingerprint: names a key, proves nothing."""
        digest = content_digest(self.key.raw)
        return f"{digest[:4]} {digest[4:8]}"

    @property
    def whole(self) -> str:
        """The whole fingerprint, as it stands on its owner's paper."""
        return group_digest(content_digest(self.key.raw))


@dataclass(frozen=True, slots=True)
class RoleSet:
    """A role's keys, and how many of them must sign."""

    holders: tuple[KeyHolder, ...]
    threshold: int


def tuf_key(holder: KeyHolder) -> Key:
    """Return the key in TUF's form, with its holder's name beside it."""
    plain = SSlibKey.from_crypto(holder.key.crypto)
    fields = {NAME_FIELD: holder.name}
    return SSlibKey(plain.keyid, plain.keytype, plain.scheme, plain.keyval, fields)


def holder_of(key: Key) -> KeyHolder:
    """Return who holds a key of verified metadata; raises ``STO-K001``, ``STO-K050``."""
    if key.keytype != "ed25519":
        raise TrustError("STO-K050", f"a role's key is of type {key.keytype[:16]!r}")
    name = key.unrecognized_fields.get(NAME_FIELD)
    public = _checked_key(str(key.keyval.get("public", "")))
    holder = KeyHolder(name if isinstance(name, str) else key.keyid[:8], public)
    if tuf_key(holder).keyid != key.keyid:
        raise TrustError("STO-K050", "a key is named by another id than its own")
    return holder


@functools.lru_cache(maxsize=256)
def _checked_key(text: str) -> PublicKey:
    """Return a public key, checked once: a review asks for the same few many times."""
    return parse_public_key(text)

"""Whose key is whose: a role's keys with the names that people know them by.

The name travels inside the metadata, beside the key, so that every later ceremony can say
who signed and who is missing; key ids mean nothing to people. A name proves nothing: the
key does, and its fingerprint was compared when the role was made.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec
from securesystemslib.signer import SSlibKey
from tuf.api.metadata import Key, Role, Root, Targets

from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError, UsageError
from stoilo.core.signatures import PublicKey, parse_public_key
from stoilo.signer.offline_keys import group_digest
from stoilo.signer.roles import DELEGATED, role_limits

NAME_FIELD: Final = "x-stoilo-name"
MAX_NAME = 64
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Person(msgspec.Struct, frozen=True):
    """A key's holder as shown; the first groups of its fingerprint, and all of them."""

    name: str
    fingerprint: str
    whole: str


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
    def person(self) -> Person:
        """The holder for people; only the whole fingerprint proves anything."""
        digest = content_digest(self.key.raw)
        return Person(self.name, f"{digest[:4]} {digest[4:8]}", group_digest(digest))


@dataclass(frozen=True, slots=True)
class RoleSet:
    """A role's keys, and how many of them must sign."""

    holders: tuple[KeyHolder, ...]
    threshold: int


@dataclass(frozen=True, slots=True)
class RoleChange:
    """Keys that leave and join one role, and its new threshold (None: as it was)."""

    role: str
    out: tuple[KeyHolder, ...] = ()
    add: tuple[KeyHolder, ...] = ()
    threshold: int | None = None


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
    # Thresholds count ids: one key under two ids would count twice.
    if tuf_key(holder).keyid != key.keyid:
        raise TrustError("STO-K050", "a key is named by another id than its own")
    return holder


@functools.lru_cache(maxsize=256)
def _checked_key(text: str) -> PublicKey:
    """Return a public key, checked once: a review asks for the same few many times."""
    return parse_public_key(text)


ONLINE_ROLES = ("snapshot", "timestamp")
_TOP = ("root", "targets", *ONLINE_ROLES)


def role_row(owner: Root | Targets, role: str) -> Role:
    """Return a role's key ids and threshold; raises ``STO-K054``."""
    rows: dict[str, Role] = {}
    if isinstance(owner, Root):
        rows = dict(owner.roles)
    elif owner.delegations and owner.delegations.roles:
        rows = dict(owner.delegations.roles)
    if role not in rows:
        raise UsageError("STO-K054", f"the release has no role {role[:32]!r}")
    return rows[role]


def role_keys(owner: Root | Targets, role: str) -> tuple[Key, ...]:
    """Return the keys of `role`, as `owner` (root, or targets for delegated) says."""
    if isinstance(owner, Root):
        known = owner.keys
    else:
        known = owner.delegations.keys if owner.delegations else {}
    ids = role_row(owner, role).keyids
    return tuple(known[keyid] for keyid in ids if keyid in known)


def role_set(owner: Root | Targets, role: str) -> RoleSet:
    """Return who holds `role`, and how many of them must sign."""
    holders = tuple(holder_of(key) for key in role_keys(owner, role))
    return RoleSet(holders, role_row(owner, role).threshold)


def change_keys(owner: Root | Targets, change: RoleChange) -> None:
    """Take keys out of a role and put others in.

    Raises ``STO-K054`` when a key is not there, or there already.
    """
    role = change.role
    row = role_row(owner, role)
    for holder in change.out:
        keyid = tuf_key(holder).keyid
        if keyid not in row.keyids:
            raise UsageError(
                "STO-K054",
                f"{holder.name}'s key is not one of {role}",
                hint="`stoilo release review` lists each role's keys",
            )
        owner.revoke_key(keyid, role)
    for holder in change.add:
        key = tuf_key(holder)
        if key.keyid in row.keyids:
            raise UsageError("STO-K054", f"{holder.name}'s key is in {role} already")
        owner.add_key(key, role)
    if change.threshold is not None:
        row.threshold = change.threshold


def check_role_keys(root: Root, targets: Targets) -> None:
    """Refuse keys that do not add up.

    Every role keeps the limits of ``roles.toml``, and one key has one use; snapshot and
    timestamp, both the signer process's, may share theirs.

    Raises ``STO-K053``.
    """
    for role, found in _all_sets(root, targets):
        _check_limits(role, found)
    offline = [
        (holder.key.raw, role)
        for role, found in _all_sets(root, targets)
        for holder in found.holders
        # Snapshot and timestamp may share their key: one process holds both.
        if role != "snapshot"
    ]
    online = {holder.key.raw for holder in role_set(root, "snapshot").holders}
    uses = Counter(key for key, _ in offline)
    uses.update(key for key in online if (key, "timestamp") not in offline)
    for key, role in offline:
        if uses[key] > 1:
            raise UsageError("STO-K053", f"a key of {role} is also one of another role")


def _all_sets(root: Root, targets: Targets) -> Iterator[tuple[str, RoleSet]]:
    for role in _TOP:
        yield role, role_set(root, role)
    for role in DELEGATED:
        yield role, role_set(targets, role)


def _check_limits(role: str, found: RoleSet) -> None:
    limits = role_limits(role)
    keys = {holder.key.raw for holder in found.holders}
    if not limits.min_keys <= len(keys) <= limits.max_keys or len(keys) != len(
        found.holders
    ):
        raise UsageError(
            "STO-K053",
            f"{role} has {len(keys)} keys; it needs {limits.min_keys} to "
            f"{limits.max_keys}, each another one",
            hint=f"`stoilo release request FOLDER --role {role} --out OLD.pub --in NEW.pub` "
            "puts another in its place",
        )
    # People know each other by name: two keys of "Ada" look like one person.
    if len({holder.name.lower() for holder in found.holders}) != len(keys):
        raise UsageError(
            "STO-K053",
            f"two keys of {role} are under one name",
            hint="everybody has a name of his own: `stoilo release keygen --name NAME`",
        )
    if not limits.min_threshold <= found.threshold <= len(keys):
        raise UsageError(
            "STO-K053",
            f"{role} asks for {found.threshold} signatures; it needs at least "
            f"{limits.min_threshold} and has {len(keys)} keys",
        )

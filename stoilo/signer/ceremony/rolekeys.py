"""Which keys a role has, and whether a release's keys add up: pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tuf.api.metadata import Key, Role, Root, Targets

from stoilo.core.errors import UsageError
from stoilo.signer.ceremony.changes import RoleChange
from stoilo.signer.ceremony.holders import KeyHolder, RoleSet, holder_of, tuf_key
from stoilo.signer.roles import DELEGATED, role_limits

__all__ = [
    "ONLINE_ROLES",
    "change_keys",
    "check_role_keys",
    "role_keys",
    "role_set",
]

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

    Raises:
        UsageError: ``STO-K054`` when a key is not there, or there already.
    """
    role = change.role
    row = role_row(owner, role)
    for holder in change.out:
        keyid = tuf_key(holder).keyid
        if keyid not in row.keyids:
            raise _not_there(holder, role)
        owner.revoke_key(keyid, role)
    for holder in change.add:
        key = tuf_key(holder)
        if key.keyid in row.keyids:
            raise UsageError("STO-K054", f"{holder.name}'s key is in {role} already")
        owner.add_key(key, role)
    if change.threshold is not None:
        row.threshold = change.threshold


def _not_there(holder: KeyHolder, role: str) -> UsageError:
    return UsageError(
        "STO-K054",
        f"{holder.name}'s key is not one of {role}",
        hint="`stoilo release status` lists each role's keys",
    )


def check_role_keys(root: Root, targets: Targets) -> None:
    """Refuse keys that do not add up.

    Every role keeps the limits of ``roles.toml``, and one key has one use; snapshot and
    timestamp, both the signer process's, may share theirs.

    Raises:
        UsageError: ``STO-K053``.
    """
    for role, found in _all_sets(root, targets):
        _check_limits(role, found)
    offline = [
        (holder.key.raw, role)
        for role, found in _all_sets(root, targets)
        for holder in found.holders
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
            hint=f"`stoilo release rotate FOLDER --role {role} --out OLD.pub --in NEW.pub` "
            "puts another in its place",
        )
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

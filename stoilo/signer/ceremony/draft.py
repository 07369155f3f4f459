"""Metadata while it is being changed: the working set behind `proposal`.

Everything that a change makes necessary is drawn in here, so that nobody has to know it: a
role whose keys change is signed anew by the new keys, each role steps one version up
once, and every file that is touched gets a whole life.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from tuf.api.metadata import (
    DelegatedRole,
    Delegations,
    Metadata,
    Root,
    TargetFile,
    Targets,
)

from stoilo.core.errors import UsageError
from stoilo.signer.ceremony.changes import NewTarget, RoleChange, role_of_target
from stoilo.signer.ceremony.current import CurrentRelease
from stoilo.signer.ceremony.holders import RoleSet, tuf_key
from stoilo.signer.ceremony.metadata import (
    RoleFile,
    open_root,
    open_targets,
    role_file,
)
from stoilo.signer.ceremony.rolekeys import ONLINE_ROLES, change_keys, check_role_keys
from stoilo.signer.roles import DELEGATED, OFFLINE, role_limits

__all__ = ["Draft"]


class Draft:
    """A set of metadata on its way to a proposal.

    Args:
        base: the published release, None for a first one.
        proposed: metadata that is proposed already, unsigned.
        targets: new files that it names.
        now: Unix seconds; lifetimes begin here.
    """

    def __init__(
        self,
        base: CurrentRelease | None,
        proposed: Iterable[RoleFile],
        targets: Iterable[NewTarget],
        now: int,
    ) -> None:
        self._base = base
        self._proposed = {file.role: file for file in proposed}
        self._new = {one.name: one for one in targets}
        self._now = now
        self._root: Root | None = None
        self._roles: dict[str, Targets] = {}
        for role in self._proposed:
            self.renew(role)

    def start(self, roles: Mapping[str, RoleSet], marks: Mapping[str, bool]) -> None:
        """Make a first root, first targets and first delegated roles."""
        self._root = Root(
            version=1,
            expires=self._end("root"),
            consistent_snapshot=True,
            unrecognized_fields=dict(marks),
        )
        for name in ("root", "targets", *ONLINE_ROLES):
            for holder in roles[name].holders:
                self._root.add_key(tuf_key(holder), name)
            self._root.roles[name].threshold = roles[name].threshold
        self._roles["targets"] = Targets(
            version=1, expires=self._end("targets"), delegations=_delegations(roles)
        )
        for name in DELEGATED:
            self._roles[name] = Targets(version=1, expires=self._end(name))

    def renew(self, role: str) -> None:
        """Sign `role` again: one version up, with a whole life; raises ``STO-K054``."""
        if role == "root":
            self._renewed_root()
        else:
            self._renewed(role)

    def put(self, targets: Iterable[NewTarget]) -> None:
        """Name new targets, where they differ from what is named."""
        for one in targets:
            role = role_of_target(one.name)
            wanted = TargetFile(one.size, {"sha256": one.digest}, one.name)
            if self._named(role).get(one.name) != wanted:
                self._renewed(role).targets[one.name] = wanted
                self._new[one.name] = one

    def drop(self, name: str) -> None:
        """Leave target `name` out; raises ``STO-K054`` when it is not there."""
        role = role_of_target(name)
        if name not in self._named(role):
            raise UsageError("STO-K054", f"the release names no target {name[:80]!r}")
        del self._renewed(role).targets[name]
        self._new.pop(name, None)

    def change_keys(self, change: RoleChange) -> None:
        """Change a role's keys; who must sign what is drawn in."""
        delegated = change.role in DELEGATED
        owner = self._renewed("targets") if delegated else self._renewed_root()
        change_keys(owner, change)
        if change.role in OFFLINE:
            self.renew(change.role)

    def result(self) -> tuple[tuple[RoleFile, ...], tuple[NewTarget, ...]]:
        """Return metadata and new targets; raises ``STO-K053`` for impossible keys."""
        root = self._root or open_root(self._newest("root")).signed
        targets = self._roles.get("targets")
        check_role_keys(root, targets or open_targets(self._newest("targets")).signed)
        made: dict[str, Metadata[Any]] = {
            role: Metadata(signed) for role, signed in self._roles.items()
        }
        if self._root is not None:
            made["root"] = Metadata(self._root)
        files = (role_file(role, made[role]) for role in OFFLINE if role in made)
        return tuple(files), self._named_targets()

    def _named_targets(self) -> tuple[NewTarget, ...]:
        """Return the new files that are still named."""
        found = []
        for name, one in sorted(self._new.items()):
            info = self._named(role_of_target(name)).get(name)
            if info is not None and info.hashes["sha256"] == one.digest:
                found.append(one)
        return tuple(found)

    def _named(self, role: str) -> dict[str, TargetFile]:
        if role in self._roles:
            return self._roles[role].targets
        return open_targets(self._newest(role)).signed.targets

    def _renewed_root(self) -> Root:
        if self._root is None:
            self._root = open_root(self._newest("root")).signed
            self._step(self._root, "root")
        return self._root

    def _renewed(self, role: str) -> Targets:
        if role not in self._roles:
            self._roles[role] = open_targets(self._newest(role)).signed
            self._step(self._roles[role], role)
        return self._roles[role]

    def _step(self, signed: Root | Targets, role: str) -> None:
        """Give `signed` a whole life, and a version one above what is published."""
        signed.expires = self._end(role)
        if role not in self._proposed:
            signed.version += 1

    def _newest(self, role: str) -> RoleFile:
        file = self._proposed.get(role)
        if file is None and self._base is not None:
            file = self._base.role(role)
        if file is None:
            raise UsageError(
                "STO-K054",
                f"the release has no role {role[:32]!r} that people sign",
                hint=f"roles: {', '.join(OFFLINE)}",
            )
        return file

    def _end(self, role: str) -> datetime:
        days = role_limits(role).lifetime_days
        return datetime.fromtimestamp(self._now, UTC) + timedelta(days=days)


def _delegations(roles: Mapping[str, RoleSet]) -> Delegations:
    """Return the delegated roles, each terminating and bound to its own paths."""
    keys = {}
    rows = {}
    for name in DELEGATED:
        own = {key.keyid: key for key in map(tuf_key, roles[name].holders)}
        keys.update(own)
        rows[name] = DelegatedRole(
            name,
            keyids=list(own),
            threshold=roles[name].threshold,
            terminating=True,
            paths=[f"{name}/*"],
        )
    return Delegations(keys, rows)

"""Unsigned metadata from a release and what somebody wants changed: pure.

A proposal is a set of metadata files, each exactly one version above the release that it
builds on, and the new targets that they name. Signatures are added to it later and change
nothing that it says: its digest is over what is signed, and is what people compare.

Everything that a change makes necessary is drawn in, so that nobody has to know it: a role
whose keys change is signed anew by the new keys, each role steps one version up once, and
every file that is touched gets a whole life.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tuf.api.metadata import (
    DelegatedRole,
    Delegations,
    Metadata,
    Root,
    TargetFile,
    Targets,
)

from stoilo.core.digests import Digest, content_digest
from stoilo.core.errors import TrustError, UsageError
from stoilo.executor.verifier.trust import DEVELOPMENT_MARK, REHEARSAL_MARK
from stoilo.signer.ceremony.base_release import BaseRelease, stored_name
from stoilo.signer.ceremony.key_holders import (
    ONLINE_ROLES,
    RoleChange,
    RoleSet,
    change_keys,
    check_role_keys,
    tuf_key,
)
from stoilo.signer.ceremony.metadata import (
    RoleFile,
    open_root,
    open_targets,
    role_file,
    signatures_of,
    targets_of,
)
from stoilo.signer.roles import DELEGATED, OFFLINE, role_limits


@dataclass(frozen=True, slots=True)
class NewTarget:
    """A file that a proposal names."""

    name: str  # as targets metadata names it, for example ``verifier/x86_64-linux.tar``
    digest: Digest  # SHA-256 of its bytes
    size: int  # bytes
    content: bytes | Path  # the bytes, or for archives the file where they lie

    @classmethod
    def of(cls, name: str, data: bytes) -> NewTarget:
        """Return a small target of `data`."""
        return cls(name, content_digest(data), len(data), data)

    @property
    def stored(self) -> str:
        """The file's name below ``targets/``."""
        return stored_name(self.name, self.digest)


@dataclass(frozen=True, slots=True)
class Changes:
    """What is to become different."""

    put: tuple[NewTarget, ...] = ()  # targets to add or replace
    drop: tuple[str, ...] = ()  # names of targets to leave out
    keys: tuple[RoleChange, ...] = ()  # changes of roles' keys
    renew: tuple[str, ...] = ()  # roles to sign again although nothing in them changes

    def __or__(self, other: Changes) -> Changes:
        """Return both, `other` after this one."""
        return Changes(
            put=(*self.put, *other.put),
            drop=(*self.drop, *other.drop),
            keys=(*self.keys, *other.keys),
            renew=(*self.renew, *other.renew),
        )


@dataclass(frozen=True, slots=True)
class Proposal:
    """Metadata to sign, and the new files that it names."""

    base: BaseRelease | None  # the release it builds on, None for a first one
    metadata: tuple[RoleFile, ...] = ()  # in the order of `OFFLINE`
    targets: tuple[NewTarget, ...] = ()  # new files, by name

    @property
    def digest(self) -> Digest:
        """What is to be signed, in one digest; signatures do not change it."""
        # The release below is part of what is signed: the same files on another
        # are not.
        base = "-" if self.base is None else self.base.digest
        lines = [f"stoilo-proposal/1 {base}\n"]
        lines += [f"{file.name} {file.signed_digest}\n" for file in self.metadata]
        return content_digest("".join(lines).encode())

    @property
    def is_signed(self) -> bool:
        """Whether anybody has signed anything."""
        return any(signatures_of(file) for file in self.metadata)

    def role(self, name: str) -> RoleFile | None:
        """Return the proposed metadata of role `name`, None when it stays."""
        return next((file for file in self.metadata if file.role == name), None)

    def newest(self, name: str) -> RoleFile | None:
        """Return role `name` as it will be: proposed, else as published."""
        known = None if self.base is None else self.base.role(name)
        return self.role(name) or known

    def target(self, name: str) -> bytes | None:
        """Return small target `name` as it will be; None when there will be none.

        Raises ``STO-K052`` when it is named, and missing or damaged.
        """
        file = self.newest(role_of_target(name))
        info = None if file is None else targets_of(file).get(name)
        if info is None:
            return None
        for one in self.targets:
            if one.name == name and one.digest == info.hashes["sha256"]:
                return one.content if isinstance(one.content, bytes) else None
        if self.base is not None and self.base.info(name) == info:
            return self.base.target(name)
        raise TrustError("STO-K052", f"target {name} is missing or damaged")


def first_proposal(
    roles: Mapping[str, RoleSet],  # every role's keys, snapshot and timestamp included
    put: Iterable[NewTarget],  # every target
    now: int,  # Unix seconds
    *,
    rehearsal: bool = False,  # whether the root is one of a staging project
    development: bool = False,  # whether all keys lie on one machine
) -> Proposal:
    """Return the metadata of a project's first release, unsigned.

    Raises ``STO-K053`` for a role without keys, with too few or too many, with an
    impossible threshold, or sharing a key with another role.
    """
    draft = Draft(None, (), (), now)
    marks = {REHEARSAL_MARK: rehearsal, DEVELOPMENT_MARK: development}
    draft.start(roles, {mark: True for mark, holds in marks.items() if holds})
    draft.put(put)
    return Proposal(None, *draft.result())


def next_proposal(current: BaseRelease, changes: Changes, now: int) -> Proposal:
    """Return the metadata that makes `changes` to `current`, unsigned.

    Raises ``STO-K053`` for keys that do not add up, ``STO-K054`` for a change of what
    is not there.
    """
    return amend_proposal(Proposal(current), changes, now)


def amend_proposal(proposal: Proposal, changes: Changes, now: int) -> Proposal:
    """Return an unsigned proposal with more changes; raises as `next_proposal`.

    Raises ``STO-K054`` when somebody has signed already.
    """
    if proposal.is_signed:
        raise UsageError(
            "STO-K054",
            "somebody has signed this proposal already",
            hint="publish it first, or begin another folder and sign that one",
        )
    draft = Draft(proposal.base, proposal.metadata, proposal.targets, now)
    for change in changes.keys:
        draft.change_keys(change)
    draft.put(changes.put)
    for name in changes.drop:
        draft.drop(name)
    for role in changes.renew:
        draft.renew(role)
    return Proposal(proposal.base, *draft.result())


def role_of_target(name: str) -> str:
    """Return the role that names target `name`."""
    prefix = name.partition("/")[0]
    return prefix if prefix in DELEGATED else "targets"


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
        base: BaseRelease | None,
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
        # What was proposed earlier gets a whole life from now, too.
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
            # A file that is named already makes nobody sign anew.
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
        # Its present metadata is signed by keys that no longer count.
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
        # One step above what is published, however often it is amended.
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

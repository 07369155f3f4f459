"""What somebody asks to become different in a release: values only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stoilo.core.digests import Digest, content_digest
from stoilo.signer.ceremony.current import stored_name
from stoilo.signer.ceremony.holders import KeyHolder
from stoilo.signer.roles import DELEGATED

__all__ = ["Changes", "NewTarget", "RoleChange", "role_of_target"]


@dataclass(frozen=True, slots=True)
class NewTarget:
    """A file that a proposal names.

    Attributes:
        name: as targets metadata names it, for example ``verifier/x86_64-linux.tar``.
        digest: SHA-256 of its bytes.
        size: bytes.
        content: the bytes, or for archives the file where they lie.
    """

    name: str
    digest: Digest
    size: int
    content: bytes | Path

    @classmethod
    def of(cls, name: str, data: bytes) -> NewTarget:
        """Return a small target of `data`."""
        return cls(name, content_digest(data), len(data), data)

    @property
    def stored(self) -> str:
        """The file's name below ``targets/``."""
        return stored_name(self.name, self.digest)


@dataclass(frozen=True, slots=True)
class RoleChange:
    """Keys that leave and join one role, and its new threshold (None: as it was)."""

    role: str
    out: tuple[KeyHolder, ...] = ()
    add: tuple[KeyHolder, ...] = ()
    threshold: int | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """What is to become different.

    Attributes:
        put: targets to add or replace.
        drop: names of targets to leave out.
        keys: changes of roles' keys.
        renew: roles to sign again although nothing in them changes.
    """

    put: tuple[NewTarget, ...] = ()
    drop: tuple[str, ...] = ()
    keys: tuple[RoleChange, ...] = ()
    renew: tuple[str, ...] = ()

    def __or__(self, other: Changes) -> Changes:
        """Return both, `other` after this one."""
        return Changes(
            put=(*self.put, *other.put),
            drop=(*self.drop, *other.drop),
            keys=(*self.keys, *other.keys),
            renew=(*self.renew, *other.renew),
        )


def role_of_target(name: str) -> str:
    """Return the role that names target `name`."""
    prefix = name.partition("/")[0]
    return prefix if prefix in DELEGATED else "targets"

"""A policy: the server's versioned, signed narrowing of the levels (design §4).

It can close levels, restrict who may use them, ask for review, deny digests and
modules, and lower limits; there is no field that opens anything. Its digest stands in
every admission. The operator writes it: trusted, still parsed strictly.
"""

from __future__ import annotations

import functools
from enum import StrEnum
from importlib import resources
from typing import TYPE_CHECKING

import msgspec

from stoilo.core.digests import Domain, check_digest, domain_digest
from stoilo.core.errors import DeniedError, TrustError, UsageError
from stoilo.core.types import BOUNDS

if TYPE_CHECKING:
    from collections.abc import Collection


EVERYBODY = "*"  # In `LevelRule.open_to`: every authenticated submitter


class Review(StrEnum):
    """Whether a person must sign before a task of a level is admitted."""

    NONE = "none"
    MANUAL = "manual"


class LevelRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who may use one level.

    Attributes:
        open_to: role names, ``user:NAME``, or ``*``; empty closes the level.
        review: ``manual`` parks tasks until a reviewer signs.
    """

    open_to: tuple[str, ...] = ()
    review: Review = Review.NONE


class Quota(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one submitter of a role may use; counts, and bytes where named so."""

    tasks_per_hour: int = 1_000
    running_tasks: int = 1_000
    refusals_per_hour: int = 100
    blob_bytes: int = 1 << 30


class PolicyLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits below those of the system; larger numbers have no effect."""

    source_bytes: int = BOUNDS.source_bytes
    ast_nodes: int = BOUNDS.ast_nodes


class Denials(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is refused by name: SHA-256 of modules' bytes, dotted library modules."""

    digests: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One version of a project's policy.

    Attributes:
        format: of this file, 1.
        name: for people.
        levels: rules of the levels that are open at all.
        quotas: by role.
        deny: digests and modules.
        limits: lower limits.
        digest: domain-separated digest of the file's bytes; set by `parse_policy`.
        text: the file's bytes, to send the policy on; set by `parse_policy`.
    """

    format: int
    name: str
    levels: dict[str, LevelRule] = {}
    quotas: dict[str, Quota] = {}
    deny: Denials = Denials()
    limits: PolicyLimits = PolicyLimits()
    digest: str = ""
    text: bytes = b""

    def is_open(self, level: str) -> bool:
        """Whether anybody at all may use `level`."""
        rule = self.levels.get(level)
        return rule is not None and bool(rule.open_to)

    def needs_review(self, level: str) -> bool:
        """Whether tasks of `level` wait for a reviewer's signature."""
        rule = self.levels.get(level)
        return rule is not None and rule.review is Review.MANUAL

    def quota(self, role: str) -> Quota:
        """Return the quota of `role`, the built-in one when it has none."""
        return self.quotas.get(role, Quota())


def parse_policy(data: bytes) -> Policy:
    """Parse one policy file (TOML) or raise ``STO-P003``."""
    try:
        policy = msgspec.toml.decode(data, type=Policy)
        for digest in policy.deny.digests:
            check_digest(digest)
    except (msgspec.MsgspecError, UnicodeDecodeError, TrustError) as error:
        raise _broken(str(error)) from error
    if policy.format != 1:
        raise _broken(f"format {policy.format} is not known")
    if policy.digest or policy.text:
        raise _broken("digest and text are computed, not written")
    digest = domain_digest(Domain.POLICY, data)
    return msgspec.structs.replace(policy, digest=digest, text=data)


def _broken(reason: str) -> UsageError:
    return UsageError(
        "STO-P003",
        f"policy file is broken: {reason}",
        hint="compare it with the shipped stoilo/policies/data/default.toml",
    )


@functools.cache
def default_policy() -> Policy:
    """Return the shipped policy."""
    page = resources.files("stoilo.policies") / "data" / "default.toml"
    return parse_policy(page.read_bytes())


def check_access(policy: Policy, level: str, user: str, roles: Collection[str]) -> None:
    """Raise ``STO-P050`` unless the submitter may use `level`.

    Kept out of the verdict, which is the same for everybody and therefore cached.

    Args:
        policy: in force.
        level: name of the level the gate chose.
        user: the authenticated submitter's name.
        roles: the token's roles.
    """
    rule = policy.levels.get(level, LevelRule())
    who = {EVERYBODY, f"user:{user}", *roles}
    if who.isdisjoint(rule.open_to):
        raise DeniedError(
            "STO-P050",
            f"level {level} is not open to you under this project's policy",
            hint="ask the project's operator, or keep to a lower level",
        )

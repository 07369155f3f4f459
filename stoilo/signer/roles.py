"""The roles of a release and their limits, read from ``roles.toml``: data, not code."""

from __future__ import annotations

import functools
import tomllib
from importlib import resources
from typing import Annotated, Final, Literal

import msgspec

DAY_S: Final = 24 * 3600

DELEGATED: Final = ("gate", "policy", "reviewers", "revocation")
"""Roles that targets delegates, each for the paths below its own name."""

OFFLINE: Final = ("root", "targets", *DELEGATED)
"""Roles that people sign, in the order of publication's trust."""

_Count = Annotated[int, msgspec.Meta(ge=1)]


class RoleLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One role's limits; days are of 24 h, counts are of keys."""

    lifetime_days: _Count
    warn_days: _Count
    urgent_days: _Count
    min_keys: _Count
    min_threshold: _Count
    max_keys: _Count
    signs: Literal["offline", "online"]

    @property
    def lifetime_s(self) -> int:
        """How long metadata signed now lives, s."""
        return self.lifetime_days * DAY_S


class CeremonyBounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds of a ceremony's folder; see the comments in ``roles.toml``."""

    life_days: _Count
    clock_margin_s: _Count
    max_files: _Count
    metadata_bytes: _Count
    archive_bytes: _Count
    transcript_bytes: _Count
    kept_digests: _Count
    max_epochs: _Count
    epochs_warn_days: _Count
    epochs_urgent_days: _Count

    @property
    def life_s(self) -> int:
        """How long a proposal may be signed, s."""
        return self.life_days * DAY_S


class RolesFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``roles.toml``."""

    format: Literal["stoilo-roles/1"]
    roles: dict[str, RoleLimits]
    ceremony: CeremonyBounds


@functools.cache
def load_roles() -> RolesFile:
    """Return the shipped limits (part of the package, trusted)."""
    text = (resources.files("stoilo.signer") / "roles.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), type=RolesFile)


def role_limits(role: str) -> RoleLimits:
    """Return the limits of `role`, one of those in ``roles.toml``."""
    return load_roles().roles[role]


def ceremony_bounds() -> CeremonyBounds:
    """Return the bounds of a ceremony's folder."""
    return load_roles().ceremony

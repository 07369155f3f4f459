"""The roles of a release: their limits, read from ``roles.toml``, and what ends when. Pure."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable
from importlib import resources
from typing import Annotated, Final, Literal, get_args

import msgspec
from tuf.api.metadata import Signed

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


ExpiryState = Literal["ok", "soon", "urgent", "expired"]


class RoleExpiry(msgspec.Struct, frozen=True):
    """One role's newest metadata: its version and end (Unix seconds), and what that means."""

    role: str
    version: int
    expires: int
    state: ExpiryState


def expiries(
    metadata: Iterable[tuple[str, Signed]], now: int
) -> tuple[RoleExpiry, ...]:
    """Return how long each role's newest metadata, verified or not, still lives."""
    return tuple(_expiry(role, signed, now) for role, signed in metadata)


def _expiry(role: str, signed: Signed, now: int) -> RoleExpiry:
    limits, ends = role_limits(role), int(signed.expires.timestamp())
    state = expiry_state(ends - now, limits.warn_days, limits.urgent_days)
    return RoleExpiry(role, signed.version, ends, state)


def epochs_state(until: int, now: int) -> ExpiryState:
    """Return what the last gate epoch's end at `until` means; Unix seconds."""
    bounds = ceremony_bounds()
    return expiry_state(until - now, bounds.epochs_warn_days, bounds.epochs_urgent_days)


def expiry_state(left_s: int, warn_days: int, urgent_days: int) -> ExpiryState:
    """Return what it means that something ends in `left_s`."""
    if left_s <= 0:
        return "expired"
    if left_s <= urgent_days * DAY_S:
        return "urgent"
    return "soon" if left_s <= warn_days * DAY_S else "ok"


def worst_state(found: Iterable[ExpiryState]) -> ExpiryState:
    """Return the state that most needs somebody; ``ok`` for none."""
    return max(found, key=get_args(ExpiryState).index, default="ok")


def open_until(spans: Iterable[tuple[int, int]], now: int) -> int:
    """Return until when one of the gate's epochs is open from `now` on; 0: none is.

    `spans` are begin and end of each epoch that is not withdrawn; all in Unix seconds.
    """
    until = 0
    # Epochs may overlap. A gap between two ends admissions as surely as the last one's end.
    for begin, end in sorted(spans):
        if begin <= max(until, now) < end:
            until = max(until, end)
    return until

"""What of a release expires when: pure, so that status, server and tests share it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tuf.api.metadata import Signed

from stoilo.signer.roles import DAY_S, RoleLimits, role_limits

ExpiryState = Literal["ok", "soon", "urgent", "expired"]
_ORDER: tuple[ExpiryState, ...] = ("ok", "soon", "urgent", "expired")


@dataclass(frozen=True, slots=True)
class RoleExpiry:
    """One role's newest metadata: its version and end (Unix seconds), and what that means."""

    role: str
    version: int
    expires: int
    state: ExpiryState


def expiries(
    metadata: Iterable[tuple[str, Signed]], now: int
) -> tuple[RoleExpiry, ...]:
    """Return how long each role's newest metadata still lives.

    Args:
        metadata: each role's name and newest signed part; verified or not, only
            version and expiry are read.
        now: Unix seconds.
    """
    return tuple(
        RoleExpiry(
            role,
            signed.version,
            int(signed.expires.timestamp()),
            expiry_state(role_limits(role), int(signed.expires.timestamp()), now),
        )
        for role, signed in metadata
    )


def expiry_state(limits: RoleLimits, expires: int, now: int) -> ExpiryState:
    """Return what an end at `expires` means at `now`, Unix seconds."""
    left = expires - now
    if left <= 0:
        return "expired"
    if left <= limits.urgent_days * DAY_S:
        return "urgent"
    return "soon" if left <= limits.warn_days * DAY_S else "ok"


def worst_state(found: Iterable[RoleExpiry]) -> ExpiryState:
    """Return the state that most needs somebody; ``ok`` for none."""
    return max((one.state for one in found), key=_ORDER.index, default="ok")

"""Who may review: the delegated role's file, changed by its offline key.

Like `stoilo.signer.devroot.revoke`, this is what a ceremony does on its own machine; on a
development root the role's key lies beside the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from stoilo.core.ed25519 import parse_public_key
from stoilo.core.errors import UsageError
from stoilo.executor.verifier.release.targets import (
    ReviewerFile,
    ReviewerKey,
    read_target,
)
from stoilo.executor.verifier.release.trust import REVIEWERS_FILE
from stoilo.signer.devroot import reviewers_role
from stoilo.signer.keyfiles import ensure_key
from stoilo.signer.repository import (
    newest_file,
    publish_targets,
    publishing,
    refresh_online_metadata,
)

__all__ = [
    "enroll_reviewer",
    "list_reviewers",
    "with_reviewer",
    "withdraw_reviewer",
    "without_reviewer",
]


def list_reviewers(directory: Path) -> tuple[ReviewerKey, ...]:
    """Return the reviewers that the newest published file names."""
    data = newest_file(directory, "reviewers", REVIEWERS_FILE)
    return read_target(data, ReviewerFile, REVIEWERS_FILE).keys if data else ()


def with_reviewer(named: Sequence[ReviewerKey], entry: ReviewerKey) -> ReviewerFile:
    """Return the list with `entry`, instead of an earlier one of the same key. Pure.

    Raises:
        TrustError: STO-K001, STO-K002 for a key that is none.
    """
    parse_public_key(entry.key)
    others = [one for one in named if one.key != entry.key]
    return ReviewerFile((*others, entry))


def without_reviewer(named: Sequence[ReviewerKey], key: str) -> ReviewerFile:
    """Return the list without `key` (hex), or raise ``STO-K030``. Pure."""
    others = tuple(one for one in named if one.key != key)
    if len(others) == len(named):
        raise UsageError("STO-K030", "no reviewer has this key")
    return ReviewerFile(others)


def enroll_reviewer(directory: Path, entry: ReviewerKey, now: int) -> None:
    """Publish `entry`, instead of an earlier one of the same key.

    Args:
        directory: of the release.
        entry: key, name and own accounts.
        now: Unix seconds.

    Raises:
        TrustError: STO-K001, STO-K002 for a key that is none.
        UsageError: STO-K091 for a released project.
    """
    with publishing(directory):
        _publish(directory, with_reviewer(list_reviewers(directory), entry), now)


def withdraw_reviewer(directory: Path, key: str, now: int) -> None:
    """Publish the list without `key` (hex), or raise ``STO-K030`` when it is not there.

    From then on no executor that has the new metadata runs what this key reviewed.

    Raises:
        UsageError: also STO-K091, for a released project.
    """
    with publishing(directory):
        _publish(directory, without_reviewer(list_reviewers(directory), key), now)


def _publish(directory: Path, named: ReviewerFile, now: int) -> None:
    files = {REVIEWERS_FILE: msgspec.json.encode(named)}
    publish_targets(directory, "reviewers", reviewers_role(directory), files, now)
    online = ensure_key(directory / "online" / "online.pem")
    refresh_online_metadata(directory, online, now)

"""Withdrawing and taking back in a server's data directory, beside it or while it rests.

Trust: the caller is the operator, who can read the data directory anyway. A wish to
withdraw is durable before anything else happens.
"""

from __future__ import annotations

import fcntl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stoilo.core.dsse import parse_envelope
from stoilo.core.errors import UsageError, WaitError
from stoilo.core.revocation import (
    RevocationStatement,
    parse_revocation,
    split_revocations,
)
from stoilo.executor.verifier.release.targets import RevocationFile
from stoilo.server.revocation.withdrawals import FOLDER, Withdrawals, merge_wishes
from stoilo.signer.devroot import certify_fresh_epoch, offline_list
from stoilo.signer.revoking import replace_online_key, settle_revocations

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "InForce",
    "is_running",
    "renew_gate",
    "replace_key",
    "revocations_in_force",
    "take_back",
    "wait_in_force",
    "withdraw",
]

POLL_S: Final = 0.02
MOST_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class InForce:
    """What a project has withdrawn: offline, online (None before the first), wishes."""

    offline: RevocationFile
    online: RevocationStatement | None
    waiting: RevocationStatement | None


def revocations_in_force(data: Path) -> InForce:
    """Return what the data directory says; nothing of it is verified.

    Raises:
        UsageError: ``STO-U004`` not the data directory of a server.
    """
    keys = _keys(data)
    withdrawals = Withdrawals(data / FOLDER)
    stored = withdrawals.read_file(MOST_BYTES)
    online = None
    if stored:
        envelope, _ = split_revocations(stored)
        online = parse_revocation(parse_envelope(envelope).payload)
    return InForce(offline_list(keys), online, withdrawals.wanted().statement)


def withdraw(data: Path, made: RevocationStatement) -> Path:
    """Store a wish that the server takes up at once, or at its next start.

    Raises:
        UsageError: ``STO-U004``, ``STO-L164`` more than a statement holds.
    """
    now = revocations_in_force(data)
    kept = now.online
    if kept is not None and kept.sequence <= now.offline.settled:
        kept = None
    merge_wishes(merge_wishes(kept, now.waiting), made)
    return Withdrawals(data / FOLDER).add(made)


def wait_in_force(
    data: Path, wanted: Path, made: RevocationStatement, timeout_s: float
) -> RevocationStatement:
    """Return the statement by which a running server has put a wish into force.

    Args:
        data: the server's data directory.
        wanted: the wish's file, of `withdraw`.
        made: the wish.
        timeout_s: s.

    Raises:
        WaitError: ``STO-L167``; the wish stays.
    """

    def found() -> RevocationStatement | None:
        online = revocations_in_force(data).online
        taken = online is not None and online.covers(made) and not wanted.exists()
        return online if taken else None

    statement = _poll(found, timeout_s)
    if statement is None:
        raise WaitError(
            "STO-L167",
            f"the server has not put it into force within {timeout_s:g} s",
            hint="its messages say why; the wish is stored",
        )
    return statement


def take_back(
    data: Path,
    *,
    add: RevocationStatement | None = None,
    remove: RevocationStatement | None = None,
) -> RevocationFile:
    """Publish the next offline list; see `stoilo.signer.revoking.settle_revocations`."""
    return settle_revocations(_keys(data), int(time.time()), add=add, remove=remove)


def renew_gate(data: Path) -> int:
    """Certify a fresh gate epoch by the offline targets keys; returns its number."""
    return certify_fresh_epoch(_keys(data), int(time.time()))


def replace_key(data: Path) -> RevocationFile:
    """Replace the online revocation key; see `replace_online_key`."""
    return replace_online_key(_keys(data), int(time.time()))


def is_running(data: Path) -> bool:
    """Whether a server holds the data directory."""
    try:
        with (data / "lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _poll(
    found: Callable[[], RevocationStatement | None], timeout_s: float
) -> RevocationStatement | None:
    """Return the first answer of `found` within `timeout_s`."""
    end = time.monotonic() + timeout_s
    while (answer := found()) is None and time.monotonic() < end:
        time.sleep(POLL_S)
    return answer


def _keys(data: Path) -> Path:
    """Return the release directory of a server."""
    keys = data / "keys"
    if not (keys / "metadata").is_dir():
        raise UsageError(
            "STO-U004",
            f"{data.name or data} is not the data directory of a server",
            hint="start one with `stoilo up --data DIR`",
        )
    return keys

"""The log policy in the development root's targets, and the ones that it replaced.

When the operator names other witnesses, the policy in force until then goes on speaking
for the checkpoints that it accepted: `stoilo.audit.format.policy_history` says how far.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from stoilo.audit.format.policy import LogPolicy, parse_policy, render_policy
from stoilo.audit.format.policy_history import (
    MAX_RETIRED,
    parse_history,
    render_history,
    succeed,
)
from stoilo.executor.trust import HISTORY_FILE, POLICY_FILE
from stoilo.signer.ledger import LEDGER_FILE, CheckpointLedger
from stoilo.signer.repository import newest_file

__all__ = ["log_policy_files"]


def log_policy_files(directory: Path, policy: LogPolicy, now: int) -> dict[str, bytes]:
    """Return the targets that say whom to believe about the log, by name.

    Args:
        directory: of the development root; its newest targets say what was in force.
        policy: to be in force from now on.
        now: Unix seconds.

    Raises:
        TrustError: ``STO-K014`` or ``STO-K028`` when what is there is damaged.
    """
    known = _published(directory)
    if known is not None:
        size = _signed_size(directory) if known.current != policy else 0
        policy = succeed(known, policy, now=now, size=size)
    files = {POLICY_FILE: render_policy(policy)}
    if policy.older:
        files[HISTORY_FILE] = render_history(policy.older)
    return files


def _published(directory: Path) -> LogPolicy | None:
    """Return the policy in force, with room for one more among the older ones."""
    current = newest_file(directory, "targets", POLICY_FILE)
    if current is None:
        return None
    history = newest_file(directory, "targets", HISTORY_FILE)
    older = parse_history(history) if history else ()
    return replace(parse_policy(current), older=older[: MAX_RETIRED - 1])


def _signed_size(directory: Path) -> int:
    """Return the size of the newest checkpoint that the log's key signed."""
    path = directory / "state" / LEDGER_FILE
    return CheckpointLedger(path).last.size if path.exists() else 0

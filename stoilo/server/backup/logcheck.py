"""Whether a restored log may go on: nothing newer of it may be known to anybody.

A log that signs again from an older head makes two histories: a fork, which witnesses and
monitors prove to everybody. From inside a backup this cannot be told. So a restore wants
evidence from outside: the newest checkpoint that somebody else holds (a mirror, a witness,
a monitor, a volunteer), the log itself where its disk survived, or the operator's word
that nothing was published after the backup.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final

from stoilo.audit.format.merkle import Frontier, leaf_hashes
from stoilo.audit.format.policy import open_checkpoint, parse_policy
from stoilo.audit.log.database import LogDatabase
from stoilo.audit.log.store import LogPaths
from stoilo.audit.read.reader import verify_log
from stoilo.core.errors import StoiloError, TrustError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from stoilo.audit.format.checkpoint import Checkpoint
    from stoilo.audit.format.policy import LogPolicy
    from stoilo.audit.log.database import LogState


_CHUNK: Final = 256
MAX_POLICY_BYTES: Final = 64 * 1024


def check_whole(data: Path) -> int:
    """Verify the log below `data` as an auditor and as a start would; returns its leaves.

    Raises:
        TrustError: the log's own codes, ``STO-L…``.
    """
    report = verify_log(data)
    return report.size + (report.unpublished or 0)


def open_newest(data: Path, note: bytes) -> Checkpoint:
    """Return the checkpoint in an (untrusted) note, signed by the log below `data`.

    Raises:
        UsageError: ``STO-B066`` it is no checkpoint of this log.
    """
    try:
        return open_checkpoint(note, _policy(data)).checkpoint
    except StoiloError as error:
        raise UsageError(
            "STO-B066",
            f"the checkpoint given is none of this log: {error.message} [{error.code}]",
        ) from error


def check_not_older(data: Path, newest: Checkpoint, held_by: str = "others") -> None:
    """Check that the log below `data`, which is whole, continues what is known of it.

    Args:
        data: a data directory.
        newest: what is known.
        held_by: who knows it.

    Raises:
        TrustError: ``STO-B067`` it is older, or another history.
    """
    state = _state(data)
    size = state.frontier.size
    if newest.size > size:
        raise TrustError(
            "STO-B067",
            f"{held_by} hold {newest.size} leaves of the log, this one has {size}: "
            "going on from it would fork the log",
            hint="take audit, audit-head and the signer's memory from where they "
            "survived (--log DIR), or a newer backup",
        )
    if state.origin != newest.origin or _root(data, newest.size) != newest.root:
        raise TrustError(
            "STO-B067",
            f"the log's first {newest.size} leaves are not those that {held_by} hold: "
            "going on from it would fork the log",
            hint="keep both as evidence; a log that forked begins anew under another key",
        )


def _state(data: Path) -> LogState:
    with closing(LogDatabase(LogPaths.below(data).database, read_only=True)) as log:
        state = log.load()
    if state is None:
        raise TrustError("STO-B067", "the log has not begun: it continues nothing")
    return state


def _root(data: Path, size: int) -> bytes:
    """Return the root over the first `size` leaves of the database."""
    paths = LogPaths.below(data)
    frontier = Frontier()
    with closing(LogDatabase(paths.database, read_only=True)) as database:
        for start in range(0, size, _CHUNK):
            leaves = database.leaves(start, min(start + _CHUNK, size))
            frontier = frontier.extend(leaf_hashes(leaves))
    return frontier.root()


def _policy(data: Path) -> LogPolicy:
    path = LogPaths.below(data).log / "policy.txt"
    with path.open("rb") as file:
        return parse_policy(file.read(MAX_POLICY_BYTES))

"""The audit log as the server opens it: its one writer, and what lies beside it.

The log's own parts check each other (`stoilo.audit.log.startup`), but where all of them are
gone together an empty log looks like a new one. So it is also compared with what others
remember: the signer the newest size that it signed, the server's database the places that
were acknowledged to it (I1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy import func, select

from stoilo.audit.log.batching import SequencerSettings
from stoilo.audit.log.seen import SeenStore
from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.log.side import SideStore
from stoilo.audit.witness.client import Cosigner
from stoilo.core.errors import TrustError
from stoilo.server.db import schema
from stoilo.signer.process.client import CheckpointSigner, SignerClient

if TYPE_CHECKING:
    from contextlib import AsyncExitStack
    from pathlib import Path

    from stoilo.server.db.store import Store
    from stoilo.server.release.project import Project


WITNESSED_INTERVAL_S: Final = 0.2
"""Least time between two checkpoints of a log with witnesses, s."""


@dataclass(frozen=True, slots=True)
class AuditLog:
    """The log's writer, the records beside it, and the checkpoints that executors saw."""

    writer: Sequencer
    side: SideStore
    seen: SeenStore


def open_log(
    data: Path, project: Project, store: Store, stack: AsyncExitStack
) -> AuditLog:
    """Open the log below `data`; `stack` closes it.

    Raises:
        TrustError: ``STO-L041`` it is shorter than what others remember; ``STO-L04x``.
    """
    # A connection of its own: admissions must not wait behind a checkpoint's signature.
    signer = SignerClient(project.socket, revive=project.ensure_signer)
    stack.callback(signer.close)
    settings, cosigner = SequencerSettings(), None
    if project.witnesses.witnesses:
        cosigner = Cosigner(project.witnesses)
        stack.callback(cosigner.close)
        # Every checkpoint costs each witness a request.
        pace = WITNESSED_INTERVAL_S
        settings = SequencerSettings(publish_interval_s=pace, busy_interval_s=pace)
    writer = Sequencer.open(
        data,
        project.root.origin,
        CheckpointSigner(signer, data / "audit" / "log"),
        policy=project.witnesses,
        cosign=cosigner,
        settings=settings,
    )
    stack.callback(writer.close)
    check_log_size(writer.size, signer.ping().size, store)
    side = SideStore.open(data)
    stack.callback(side.close)
    seen = SeenStore.below(data)
    stack.callback(seen.close)
    return AuditLog(writer, side, seen)


def check_log_size(size: int, signed: int, store: Store) -> None:
    """Refuse a log that holds less than the signer or the database have seen.

    Args:
        size: leaves that the log holds.
        signed: size of the newest checkpoint that the signer signed.
        store: where the indices of admissions and events are noted.

    Raises:
        TrustError: ``STO-L041``.
    """
    with store.read() as connection:
        noted = [
            connection.scalar(select(func.max(table.c.log_index)))
            for table in (schema.attempt, schema.event)
        ]
    known = max([signed, *(index + 1 for index in noted if index is not None)])
    if size < known:
        raise TrustError(
            "STO-L041",
            f"the log holds {size} leaves, but {known} were signed or acknowledged: "
            "it was lost or replaced",
            hint="restore audit/ and audit-head/ from the newest backup",
        )

"""What the log tells of a release, and the proof of it beside the release's files.

Each release that people signed has one record in the log, noted with the other changes
(`stoilo.server.release.keyevents`). Once a published checkpoint covers its leaf, record and
proof are written beside the metadata, so that anybody can check offline that the release
which he was given is one that everybody was shown.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from sqlalchemy import select

from stoilo.audit.format.record import NamedDigest, ReleaseRecord
from stoilo.audit.format.release_proof import (
    RELEASE_PROOF_FILE,
    RELEASE_RECORD_FILE,
    render_release_proof,
)
from stoilo.core.digests import content_digest
from stoilo.executor.verifier.release.targets import part_target
from stoilo.server.db import schema
from stoilo.server.log.outbox import NO_ORIGIN
from stoilo.signer.keyfiles import write_private_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stoilo.executor.verifier.release.targets import TrustedRelease
    from stoilo.executor.verifier.release.trust import ReleaseFiles
    from stoilo.server.db.store import Store
    from stoilo.server.log.ports import Log

__all__ = [
    "TRANSCRIPT_FILE",
    "ReleaseProof",
    "is_logged_release",
    "read_transcript",
    "release_record",
]

TRANSCRIPT_FILE: Final = "transcript.jsonl"
"""The ceremony's transcript, as published beside the metadata."""

MAX_TRANSCRIPT_BYTES: Final = 4 * 1024 * 1024
PUBLISH_TIMEOUT_S: Final = 2.0
_ROLE_FILE = re.compile(r"metadata/([0-9]+)\.([a-z]+)\.json")
_RENEWED_ONLINE: Final = frozenset({"snapshot", "timestamp"})


def is_logged_release(trust: TrustedRelease) -> bool:
    """Whether the release has a record of its own: signed by people, or with parts."""
    return not trust.development or bool(trust.parts)


def release_record(
    trust: TrustedRelease, files: ReleaseFiles, now: int, transcript: str = ""
) -> ReleaseRecord:
    """Return the record of a verified release. Pure.

    Args:
        trust: what it says.
        files: its metadata and small targets, verified.
        now: Unix seconds.
        transcript: SHA-256 of the ceremony's transcript, empty for none.
    """
    return ReleaseRecord(
        origin=NO_ORIGIN,
        time=now,
        root=trust.root_version,
        targets=trust.targets_version,
        metadata=tuple(_role_files(files)),
        parts=tuple(
            NamedDigest(part_target(part.part, part.platform), part.archive.sha256)
            for part in trust.parts
        ),
        transcript=transcript,
    )


def _role_files(files: ReleaseFiles) -> Iterator[NamedDigest]:
    """Yield the newest file of each role that people sign, in the order of names."""
    newest: dict[str, tuple[int, bytes]] = {}
    for name, data in files.files:
        match = _ROLE_FILE.fullmatch(name)
        if match is None or match[2] in _RENEWED_ONLINE:
            continue
        version, role = int(match[1]), match[2]
        newest[role] = max(newest.get(role, (0, b"")), (version, data))
    for role, (version, data) in sorted(newest.items()):
        yield NamedDigest(f"{version}.{role}.json", content_digest(data))


def read_transcript(directory: Path) -> str:
    """Return the SHA-256 of the transcript beside a release, empty for none."""
    try:
        with (directory / TRANSCRIPT_FILE).open("rb") as file:
            data = file.read(MAX_TRANSCRIPT_BYTES + 1)
    except FileNotFoundError:
        return ""
    return content_digest(data) if len(data) <= MAX_TRANSCRIPT_BYTES else ""


class ReleaseProof:
    """Writes the newest release's record and log proof beside it.

    Args:
        directory: the release's, or the server's own where that is another user's.
        store: knows which leaf tells of the newest release.
        log: gives the proof.
    """

    def __init__(self, directory: Path, store: Store, log: Log) -> None:
        self._directory = directory
        self._store = store
        self._log = log
        self._written = b""

    def upkeep(self) -> bool:
        """Write both files if a newer release is in the log; returns whether it did.

        Raises:
            StoiloError: the log is not published yet, or the disk refuses.
        """
        row = self._newest()
        if row is None or row[0] == self._written:
            return False
        record, leaf, index = row
        self._log.wait_published(index, timeout=PUBLISH_TIMEOUT_S)
        proof = render_release_proof(self._log.proof(index), leaf)
        write_private_file(self._directory / RELEASE_RECORD_FILE, record)
        write_private_file(self._directory / RELEASE_PROOF_FILE, proof)
        self._written = record
        return True

    def _newest(self) -> tuple[bytes, bytes, int] | None:
        """Return record, leaf and place of the newest release in the log."""
        table = schema.event
        query = (
            select(table.c.record, table.c.leaf, table.c.log_index)
            .where(table.c.key.between("release:", "release:~"))
            .where(table.c.log_index.is_not(None))
            .order_by(table.c.id.desc())
            .limit(1)
        )
        with self._store.read() as connection:
            row = connection.execute(query).first()
        return None if row is None else (bytes(row[0]), bytes(row[1]), int(row[2]))

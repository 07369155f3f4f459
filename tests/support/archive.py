"""A public archive made by hand: a real log and side store, with a key in memory.

For tests of whatever reads the log (pages, monitors), without a server. Times count up
by a second an entry, so that every run writes the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoilo.audit.format.facts import Record, RevocationRecord, WorkunitRecord
from stoilo.audit.format.merkle import leaf_hash
from stoilo.audit.format.proof import Leaf, LeafKind, render_leaf
from stoilo.audit.format.records import (
    record_leaf,
    render_record,
    salted_commitment,
    task_commitment,
)
from stoilo.audit.log.batching import SequencerSettings
from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.log.side import ObjectKind, SideObject, SideStore
from stoilo.core.digests import Digest, content_digest
from stoilo.core.types import Redundancy, RunLimits
from stoilo.policies.levels import load_level
from stoilo.policies.policy import default_policy
from tests.support.faulty_log import LogKey

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

__all__ = ["ORIGIN", "ArchiveWriter"]

ORIGIN = "stoilo.test/archive"
_BEGAN = 1_795_000_000
_WAIT_S = 60.0


class ArchiveWriter:
    """Writes the public part of a data directory, entry by entry.

    Args:
        data: the data directory, made when missing.
        key: the log's key; with a witness when it has a witness time.
    """

    def __init__(self, data: Path, key: LogKey | None = None) -> None:
        self.data = data
        self.key = key or LogKey(ORIGIN)
        self.now = _BEGAN
        self.side = SideStore.open(data)
        self._log = Sequencer.open(
            data,
            self.key.origin,
            self.key.sign,
            policy=self.key.policy,
            settings=SequencerSettings(retry_s=0.05, close_s=2),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close log and side store; what was added is published."""
        self._log.close()
        self.side.close()

    def add_leaf(self, leaf: bytes) -> int:
        """Append any bytes; returns their place once they are published."""
        self.now += 1
        return self.add_leaves([leaf])[-1]

    def add_leaves(self, leaves: list[bytes]) -> list[int]:
        """Append many entries at once; returns their places once they are published."""
        places = self._log.append_many(leaves)
        self._log.wait_published(max(places), _WAIT_S)
        return places

    def add(self, record: Record) -> int:
        """Append the leaf of a record, stored before; returns its place."""
        data = render_record(record)
        self.side.put([SideObject(ObjectKind.RECORD, data)], self.now)
        index = self.add_leaf(record_leaf(data, "1"))
        self.side.index([(index, record)])
        return index

    def admit(
        self, task_id: str, source: bytes, *, public: bool = True, **fields: object
    ) -> WorkunitRecord:
        """Append an admission and the record that explains it; returns that.

        Args:
            task_id: names the task; also the seed of its salts.
            source: the task module's bytes; stored when public.
            public: whether the submitter chose publication.
            fields: other fields of the record than the usual ones.
        """
        salt = content_digest(f"{task_id} {self.now}".encode())
        leaf = render_leaf(Leaf(LeafKind.ADMISSION, salt, "1", self.now))
        index = self.add_leaf(leaf)
        if public:
            self.side.put([SideObject(ObjectKind.SOURCE, source)], self.now)
        record = self._explain(task_id, source, salt, public=public)
        named = {"admission": index, "admission_leaf": leaf_hash(leaf).hex()}
        record = _replace(record, named | fields)
        self.add(record)
        return record

    def revoke(self, sequence: int, **fields: object) -> int:
        """Append a revocation statement; returns its place.

        Args:
            sequence: of the statement.
            fields: what it withdraws, and other fields than the usual ones.
        """
        usual: dict[str, object] = {
            "epoch": 1,
            "issuer": "online",
            "base": 1,
            "offline": content_digest(b"offline"),
            "epochs": (),
            "min_epoch": 1,
            "digests": (),
            "flavors": (),
        }
        named = {"origin": self.key.origin, "time": self.now, "sequence": sequence}
        return self.add(RevocationRecord(**named | usual | fields))  # type: ignore[arg-type]  # checked when rendered

    def _explain(
        self, task_id: str, source: bytes, salt: Digest, *, public: bool
    ) -> WorkunitRecord:
        level, digest = load_level("pure"), content_digest(source)
        return WorkunitRecord(
            origin=self.key.origin,
            time=self.now,
            state="issued",
            admission=0,
            admission_leaf="0" * 64,
            task=task_commitment(task_id),
            attempt=1,
            submitter=salted_commitment(salt, "submitter", "ada"),
            public_source=public,
            source=digest if public else salted_commitment(salt, "source", digest),
            validator=salted_commitment(salt, "validator", ""),
            arguments=salted_commitment(salt, "arguments", "x"),
            blobs=salted_commitment(salt, "blobs"),
            level=level.name,
            level_digest=level.digest,
            policy_digest=default_policy().digest,
            language_digest=content_digest(b"language"),
            flavor=content_digest(b"flavor"),
            limits=RunLimits(),
            redundancy=Redundancy(),
            epoch=1,
            admitted_at=self.now,
            not_after=self.now + 7 * 86_400,
            checkpoint=1,
        )


def _replace(record: WorkunitRecord, fields: dict[str, object]) -> WorkunitRecord:
    values = {name: getattr(record, name) for name in record.__struct_fields__}
    return WorkunitRecord(**values | fields)

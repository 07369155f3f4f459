"""A small log as a server leaves it: admissions, their records, outcomes, a source.

Everything is real (sequencer, tiles, side store), only the events are made up. Readers,
monitors and pages are tested against it without a server.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stoilo.audit.format.facts import (
    CodeCount,
    OutcomeRecord,
    Record,
    RefusalsRecord,
    WorkunitRecord,
)
from stoilo.audit.format.merkle import leaf_hash
from stoilo.audit.format.policy import LogPolicy
from stoilo.audit.format.proof import Leaf, LeafKind, render_leaf
from stoilo.audit.format.records import record_leaf, render_record, task_commitment
from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.log.side import ObjectKind, SideObject, SideStore
from stoilo.core.digests import content_digest
from stoilo.core.types import Redundancy, RunLimits
from tests.support.faulty_log import LogKey

__all__ = ["SAMPLE_SOURCE", "SampleLog", "write_sample_log"]

ORIGIN = "log.test/t"
START = 1_800_000_000
SAMPLE_SOURCE = b"def f(a):\n    return a\n"
_SOME = content_digest(b"something")


@dataclass(frozen=True, slots=True)
class SampleLog:
    """Where the log lies and what is in it.

    Attributes:
        data_dir: the server's data directory, closed.
        key: the log's key.
        tasks: ids of its tasks, each with admission, workunit record and outcome.
        admissions: places of the admissions, by task.
        source: digest of the one published source, of the first task.
        size: leaves.
    """

    data_dir: Path
    key: LogKey
    tasks: tuple[str, ...]
    admissions: tuple[int, ...]
    source: str
    size: int

    @property
    def policy(self) -> LogPolicy:
        """The policy that trusts this log."""
        return self.key.policy


def write_sample_log(data_dir: Path, *, tasks: int = 4, plain: int = 0) -> SampleLog:
    """Write a log of `tasks` tasks, after `plain` leaves that are nobody's."""
    key = LogKey(ORIGIN, witness_time=START + 10_000)
    names = tuple(f"task-{number}" for number in range(tasks))
    side = SideStore.open(data_dir)
    admissions = []
    with Sequencer.open(data_dir, ORIGIN, key.sign, policy=key.policy) as log:
        if plain:
            log.append_many([b"plain %d" % number for number in range(plain)])
        for number, name in enumerate(names):
            time = START + 86_400 * number
            leaf = render_leaf(
                Leaf(LeafKind.ADMISSION, content_digest(name.encode()), "1", time)
            )
            index = log.append(leaf, name)
            admissions.append(index)
            published = number == 0
            record = _workunit(name, index, leaf, time, published=published)
            _append(log, side, record, name)
            _append(log, side, _outcome(name, index, time + 60), name)
        _append(log, side, _refusals(), None)
        size = log.size
        log.wait_published(size - 1, 60)
    side.put([SideObject(ObjectKind.SOURCE, SAMPLE_SOURCE)], START)
    side.close()
    source = content_digest(SAMPLE_SOURCE)
    return SampleLog(data_dir, key, names, tuple(admissions), source, size)


def _append(log: Sequencer, side: SideStore, record: Record, label: str | None) -> None:
    data = render_record(record)
    side.put([SideObject(ObjectKind.RECORD, data)], record.time)
    index = log.append(record_leaf(data, "1"), label)
    side.index([(index, record)])


def _workunit(
    name: str, index: int, leaf: bytes, time: int, *, published: bool
) -> WorkunitRecord:
    return WorkunitRecord(
        origin=ORIGIN,
        time=time + 1,
        state="issued",
        admission=index,
        admission_leaf=leaf_hash(leaf).hex(),
        task=task_commitment(name),
        attempt=1,
        submitter=content_digest(b"salt and account"),
        public_source=published,
        source=content_digest(SAMPLE_SOURCE if published else name.encode()),
        validator=_SOME,
        arguments=_SOME,
        blobs=_SOME,
        level="pure",
        level_digest=_SOME,
        policy_digest=_SOME,
        language_digest=_SOME,
        flavor=_SOME,
        limits=RunLimits(
            cpu_s=60, wall_s=120, memory_bytes=2**28, result_bytes=2**20, threads=1
        ),
        redundancy=Redundancy(),
        epoch=1,
        admitted_at=time,
        not_after=time + 86_400,
    )


def _outcome(name: str, index: int, time: int) -> OutcomeRecord:
    return OutcomeRecord(
        origin=ORIGIN,
        time=time,
        task=task_commitment(name),
        attempt=1,
        admission=index,
        state="succeeded",
        code="",
        result=content_digest(b"salt and result of " + name.encode()),
        agreeing=2,
    )


def _refusals() -> RefusalsRecord:
    return RefusalsRecord(
        origin=ORIGIN,
        time=START + 500,
        submitter=content_digest(b"salt and another account"),
        start=START,
        end=START + 500,
        count=3,
        root=content_digest(b"root"),
        codes=(CodeCount("STO-P011", 3),),
    )

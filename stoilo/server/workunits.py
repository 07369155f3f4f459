"""From a signed attempt to a workunit: which files go out under which names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoilo.core.digests import content_digest
from stoilo.core.errors import InternalError
from stoilo.executor import workdir
from stoilo.executor.result import largest_result
from stoilo.server import rows
from stoilo.server.engines.interface import Replication, WorkunitFile, WorkunitSpec
from stoilo.server.reviews import reviews_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stoilo.server.blobs import BlobStore
    from stoilo.server.records import AttemptRow, TaskRow
    from stoilo.server.store import Store

__all__ = ["WorkunitWriter"]

FLOPS_PER_S = 1e9
"""What one second of an ordinary host is worth in BOINC's estimates, FLOP."""


class WorkunitWriter:
    """Builds `WorkunitSpec`s; the validator module is never among the files."""

    def __init__(
        self,
        store: Store,
        blobs: BlobStore,
        revocations: Callable[[int], bytes],
        archives: Callable[[str], WorkunitFile | None] = lambda _flavor: None,
        replication: Callable[[str], Replication] = lambda _level: Replication(),
    ) -> None:
        """Remember where the files come from.

        Args:
            store: modules and arguments.
            blobs: blobs.
            revocations: admission time (Unix seconds) → the file of revocations for
                workunits; raises ``STO-L160`` while there is none.
            archives: id of a flavor → its archive, None where the release has none.
            replication: level → how the copies of its tasks are spread.
        """
        self._store = store
        self._blobs = blobs
        self._revocations = revocations
        self._archives = archives
        self._replication = replication

    def specs(
        self, attempts: Sequence[tuple[AttemptRow, TaskRow]]
    ) -> list[WorkunitSpec]:
        """Return one spec for each signed attempt; raises ``STO-L160``."""
        newest = max(attempt.admitted_at or 0 for attempt, _ in attempts)
        revocations = _file(workdir.REVOCATIONS, self._revocations(newest))
        wanted = {task.spec.task_module for _, task in attempts}
        wanted |= {task.spec.arguments for _, task in attempts}
        with self._store.read() as connection:
            contents = rows.load_contents(connection, wanted)
        archives = {
            flavor: self._archives(flavor)
            for flavor in {task.spec.flavor for _, task in attempts}
        }
        return [
            self._spec(attempt, task, contents, revocations, archives[task.spec.flavor])
            for attempt, task in attempts
        ]

    def _spec(
        self,
        attempt: AttemptRow,
        task: TaskRow,
        contents: dict[str, bytes],
        revocations: WorkunitFile,
        archive: WorkunitFile | None,
    ) -> WorkunitSpec:
        spec = task.spec
        if attempt.envelope is None or attempt.proof is None:
            raise InternalError("STO-R041", "an attempt without admission was issued")
        blobs = [
            WorkunitFile(
                workdir.blob_name(index), digest, self._blobs.path(digest), sticky=True
            )
            for index, digest in enumerate(spec.blobs)
        ]
        files = (
            _file(workdir.ADMISSION, attempt.envelope),
            _file(workdir.PROOF, attempt.proof),
            revocations,
            _file(workdir.TASK_MODULE, contents[spec.task_module], spec.task_module),
            _file(workdir.ARGUMENTS, contents[spec.arguments], spec.arguments),
            *blobs,
            *([] if archive is None else [archive]),
        )
        runs = max(1, spec.map_items)
        return WorkunitSpec(
            name=attempt.workunit,
            app=spec.level,
            files=files,
            redundancy=spec.redundancy,
            not_after=attempt.not_after or 0,
            result_max_bytes=largest_result(
                spec.limits.result_bytes, spec.limits.output_bytes
            ),
            fpops_est=FLOPS_PER_S,
            fpops_bound=FLOPS_PER_S * spec.limits.wall_s * runs * 100,
            reviewed=bool(reviews_in(attempt.statement or b"")),
            public_source=spec.publish_source,
            topics=spec.topics,
            replication=self._replication(spec.level),
        )


def _file(open_name: str, data: bytes, digest: str | None = None) -> WorkunitFile:
    return WorkunitFile(open_name, digest or content_digest(data), data)

"""From a signed attempt to a workunit: which files go out under which names."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from stoilo.core.digests import content_digest
from stoilo.core.errors import InternalError
from stoilo.executor.verifier import workunit
from stoilo.executor.verifier.workunit import largest_result
from stoilo.server.admission.estimates import bounds_of, demand_of, load_samples
from stoilo.server.admission.quotas import find_shares
from stoilo.server.db import rows
from stoilo.server.engines.workunits import Replication, WorkunitFile, WorkunitSpec
from stoilo.server.reviews.book import reviews_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stoilo.server.admission.blobs import BlobStore
    from stoilo.server.admission.estimates import Samples
    from stoilo.server.admission.quotas import Share
    from stoilo.server.db.records import AttemptRow, TaskRow, TaskSpec
    from stoilo.server.db.store import Store


class WorkunitWriter:
    """Builds `WorkunitSpec`s; the validator module is never among the files."""

    def __init__(
        self,
        store: Store,  # modules and arguments
        blobs: BlobStore,  # blobs
        # admission time (Unix seconds) → the file of revocations for workunits; raises
        # ``STO-L160`` while there is none
        revocations: Callable[[int], bytes],
        # id of a flavor → its archive, None where the release has none
        archives: Callable[[str], WorkunitFile | None] = lambda _flavor: None,
        # level → how the results of its tasks are spread
        replication: Callable[[str], Replication] = lambda _level: Replication(),
    ) -> None:
        """Remember where the files come from."""
        self._store = store
        self._blobs = blobs
        self._revocations = revocations
        self._archives = archives
        self._replication = replication

    def specs(
        self, attempts: Sequence[tuple[AttemptRow, TaskRow]]
    ) -> list[WorkunitSpec]:
        """Return one spec for each signed attempt; raises ``STO-L160``."""
        # One file of revocations for the batch: fresh enough for the youngest is for all.
        newest = max(attempt.admitted_at or 0 for attempt, _ in attempts)
        revocations = _file(
            workunit.REVOCATIONS, self._revocations(newest), sticky=True
        )
        modules = Counter(task.spec.task_module for _, task in attempts)
        wanted = {*modules, *(task.spec.arguments for _, task in attempts)}
        with self._store.read() as connection:
            contents = rows.load_contents(connection, wanted)
            samples = load_samples(connection, [task.spec for _, task in attempts])
            owners = {task.account_id for _, task in attempts}
            shares = find_shares(connection, *owners)
        archives = {
            flavor: self._archives(flavor)
            for flavor in {task.spec.flavor for _, task in attempts}
        }
        # A source that comes again stays with the hosts; one that does not would fill disks.
        shared = {name for name, count in modules.items() if count > 1}
        made = []
        for attempt, task in attempts:
            spec = task.spec
            again = spec.task_module in shared or samples.knows(spec)
            common = [revocations, archives[spec.flavor]]
            files = self._files(attempt, spec, contents, source_sticky=again)
            files += [file for file in common if file is not None]
            share = shares[task.account_id]
            made.append(self._spec(attempt, spec, tuple(files), samples, share))
        return made

    def _files(
        self,
        attempt: AttemptRow,
        spec: TaskSpec,
        contents: dict[str, bytes],
        *,
        source_sticky: bool,
    ) -> list[WorkunitFile]:
        """Return a task's own files; a source that comes again stays with the hosts."""
        if attempt.envelope is None or attempt.proof is None:
            raise InternalError("STO-R034", "an attempt without admission was issued")
        blobs = [
            WorkunitFile(
                workunit.blob_name(index), digest, self._blobs.path(digest), sticky=True
            )
            for index, digest in enumerate(spec.blobs)
        ]
        module, arguments = spec.task_module, spec.arguments
        return [
            _file(workunit.ADMISSION, attempt.envelope),
            _file(workunit.PROOF, attempt.proof),
            _file(workunit.TASK_MODULE, contents[module], module, sticky=source_sticky),
            _file(workunit.ARGUMENTS, contents[arguments], arguments),
            *blobs,
        ]

    def _spec(
        self,
        attempt: AttemptRow,
        spec: TaskSpec,
        files: tuple[WorkunitFile, ...],
        samples: Samples,
        share: Share,
    ) -> WorkunitSpec:
        """Return one workunit: its files, its redundancy, what it may cost."""
        unpacked = sum(file.unpacked_bytes for file in files)
        demand = demand_of(spec, sum(map(_size, files)), unpacked)
        bounds = bounds_of(demand)
        return WorkunitSpec(
            name=attempt.workunit,
            app=spec.level,
            files=files,
            redundancy=spec.redundancy,
            not_after=attempt.not_after or 0,
            result_max_bytes=largest_result(
                spec.limits.result_bytes, spec.limits.output_bytes
            ),
            fpops_est=samples.estimate(spec, demand),
            fpops_bound=bounds.fpops,
            reviewed=bool(reviews_in(attempt.statement or b"")),
            public_source=spec.publish_source,
            topics=spec.topics,
            memory_bound=bounds.memory_bytes,
            disk_bound=bounds.disk_bytes,
            share=share.name,
            weight=share.weight,
            replication=self._replication(spec.level),
        )


def _size(file: WorkunitFile) -> int:
    """Return a file's size, bytes; 0 for one that has gone, which the engine refuses."""
    if isinstance(file.source, bytes):
        return len(file.source)
    try:
        return file.source.stat().st_size
    except OSError:
        return 0


def _file(
    open_name: str, data: bytes, digest: str | None = None, *, sticky: bool = False
) -> WorkunitFile:
    return WorkunitFile(open_name, digest or content_digest(data), data, sticky)

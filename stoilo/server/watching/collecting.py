"""From parts of a running server to samples: every metric of the catalogue, no decision."""

from __future__ import annotations

import os
import resource
import shutil
import threading
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stoilo.core.errors import StoiloError
from stoilo.server.watching.calls import CallMeter
from stoilo.server.watching.catalogue import METRICS
from stoilo.server.watching.serverrows import read_server_figures
from stoilo.server.watching.text import Sample, render_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from stoilo.server.db.store import Store
    from stoilo.server.engines.interface import MeasuredEngine
    from stoilo.server.release.expiry import ReleaseStatus
    from stoilo.server.watching.admissions import CountedSigner
    from stoilo.server.watching.freshness import LogFigures
    from stoilo.server.watching.readiness import Readiness


KEPT_S: Final = 5.0
"""Figures of the databases are read at most this often, s."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the figures come from."""

    store: Store  # the server's tables
    engine: MeasuredEngine  # workunits, copies, hosts
    log: Callable[[], LogFigures]  # the log now
    signer: CountedSigner  # counts admissions
    release: Callable[[], ReleaseStatus]  # how the release stands
    # admissions that the open epoch allows a minute; 0 for none
    epoch_rate: Callable[[], int]
    readiness: Callable[[], Readiness]  # the newest answers
    places: Mapping[str, Path]  # disks by name
    clock: Callable[[], int]  # seconds since 1970
    validators: Callable[[], int] = lambda: 0  # how many of their calls wait
    rpc: CallMeter = field(default_factory=CallMeter)  # gRPC calls
    http: CallMeter = field(default_factory=CallMeter)  # HTTP calls
    started_at: float = field(default_factory=time.time)  # s since 1970


class Collector:
    """The text of all metrics; callers that come together share one reading."""

    def __init__(
        self, sources: Sources, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._sources = sources
        self._clock = clock
        self._lock = threading.Lock()
        self._text = b""
        self._at = float("-inf")

    def render(self) -> bytes:
        """Return the text, at most `KEPT_S` old."""
        with self._lock:
            if self._clock() - self._at > KEPT_S:
                self._text = render_metrics(METRICS, collect(self._sources))
                self._at = self._clock()
            return self._text


def collect(sources: Sources) -> Iterator[Sample]:
    """Yield every sample that can be had; a part that fails leaves its metrics out.

    That it fails is told by ``stoilo_ready_check``.
    """
    for part in (
        _process,
        _readiness,
        _tasks,
        _admissions,
        _log,
        _release,
        _engine,
        _calls,
        _disks,
    ):
        try:
            found = list(part(sources))
        except (StoiloError, OSError):
            continue
        yield from found


def _process(sources: Sources) -> Iterator[Sample]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    yield Sample("stoilo_build_info", 1, (version("stoilo"),))
    yield Sample("stoilo_start_time_seconds", sources.started_at)
    yield Sample("stoilo_cpu_seconds_total", usage.ru_utime + usage.ru_stime)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    yield Sample("stoilo_resident_memory_bytes", pages * os.sysconf("SC_PAGE_SIZE"))
    yield Sample("stoilo_open_files", sum(1 for _ in Path("/proc/self/fd").iterdir()))


def _readiness(sources: Sources) -> Iterator[Sample]:
    found = sources.readiness()
    yield Sample("stoilo_ready", int(found.ready))
    for check in found.checks:
        yield Sample("stoilo_ready_check", int(check.ok), (check.name,))


def _tasks(sources: Sources) -> Iterator[Sample]:
    with sources.store.read() as connection:
        found = read_server_figures(connection, sources.clock())
    for state, count in found.tasks.items():
        yield Sample("stoilo_tasks", count, (state,))
    for state, count in found.attempts.items():
        yield Sample("stoilo_attempts", count, (state,))
        yield Sample("stoilo_attempt_age_seconds", found.ages[state], (state,))
    yield Sample("stoilo_events_waiting", found.events_waiting)
    yield Sample("stoilo_validators_waiting", sources.validators())


def _admissions(sources: Sources) -> Iterator[Sample]:
    yield Sample("stoilo_admissions_total", sources.signer.signed)
    yield Sample("stoilo_admissions_refused_total", sources.signer.refused)
    yield Sample("stoilo_epoch_admissions_per_minute", sources.epoch_rate())


def _log(sources: Sources) -> Iterator[Sample]:
    found = sources.log()
    yield Sample("stoilo_log_leaves_total", found.leaves)
    yield Sample("stoilo_log_published_leaves", found.published)
    yield Sample("stoilo_log_unpublished_leaves", found.leaves - found.published)
    yield Sample("stoilo_log_lag_seconds", found.lag_s)


def _release(sources: Sources) -> Iterator[Sample]:
    found, now = sources.release(), sources.clock()
    yield Sample("stoilo_epoch_remaining_seconds", max(0, found.epochs_until - now))
    for role in found.roles:
        remaining = max(0, role.expires - now)
        yield Sample("stoilo_release_remaining_seconds", remaining, (role.role,))


def _engine(sources: Sources) -> Iterator[Sample]:
    found = sources.engine.figures()
    yield Sample("stoilo_workunits", found.workunits)
    for labels, count in sorted(found.results.items()):
        yield Sample("stoilo_copies", count, labels)
    yield Sample("stoilo_copies_unsent_age_seconds", found.unsent_age_s)
    yield Sample("stoilo_validation_backlog", found.to_validate)
    yield Sample("stoilo_validation_age_seconds", found.to_validate_age_s)
    yield Sample("stoilo_outcomes_waiting", found.outcomes_waiting)
    yield Sample("stoilo_accounts", found.accounts)
    for within, count in found.hosts.items():
        yield Sample("stoilo_hosts", count, (within,))
    yield Sample("stoilo_hosts_banned", found.hosts_banned)


def _calls(sources: Sources) -> Iterator[Sample]:
    for labels, value in sources.rpc.read().items():
        yield Sample("stoilo_rpc_seconds", value, labels)
    for labels, value in sources.http.read().items():
        yield Sample("stoilo_http_seconds", value, labels)


def _disks(sources: Sources) -> Iterator[Sample]:
    for name, place in sources.places.items():
        usage = shutil.disk_usage(place)
        yield Sample("stoilo_disk_free_bytes", usage.free, (name,))
        yield Sample("stoilo_disk_bytes", usage.total, (name,))

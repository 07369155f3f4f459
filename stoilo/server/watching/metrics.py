"""Every metric that a server shows, and where its figures come from.

Labels take their values from lists of ours (states, methods, levels): nobody outside can
make a series. No name of a person, task, host, file or address is in any of them.
"""

from __future__ import annotations

import os
import resource
import shutil
import threading
import time
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import (
    CollectorRegistry,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector as MetricCollector
from sqlalchemy import func, select

from stoilo.core.errors import StoiloError
from stoilo.core.types import TaskState
from stoilo.server.db import schema
from stoilo.server.db.records import AttemptState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from prometheus_client import Metric as Family

    from stoilo.server.admission.pipeline import AdmissionPipeline
    from stoilo.server.db.store import Store
    from stoilo.server.engines.interface import MeasuredEngine
    from stoilo.server.watching.readiness import LogFigures, Readiness
    from stoilo.signer.ceremony.release_status import ReleaseStatus

# When a series began is of no use here, and would double the text.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no types here


class Kind(StrEnum):
    """What a metric's numbers mean."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of the catalogue."""

    name: str  # with its unit
    kind: Kind
    help: str  # one line
    labels: tuple[str, ...] = ()  # their values come from lists of ours only


_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

# Also for the docs and the dashboard.
METRICS: Final = (
    Metric("stoilo_build_info", _G, "1, with the server's version.", ("version",)),
    Metric("stoilo_start_time_seconds", _G, "When the server started, s since 1970."),
    Metric("stoilo_resident_memory_bytes", _G, "Memory of the server's process."),
    Metric("stoilo_cpu_seconds_total", _C, "Processor time of the server's process."),
    Metric("stoilo_open_files", _G, "Descriptors that the server's process holds."),
    Metric("stoilo_ready", _G, "1 while /readyz says yes."),
    Metric("stoilo_ready_check", _G, "1 while this check says yes.", ("check",)),
    # tasks
    Metric("stoilo_tasks", _G, "Tasks that are stored, by state.", ("state",)),
    Metric("stoilo_attempts", _G, "Open attempts, by their last step.", ("state",)),
    Metric(
        "stoilo_attempt_age_seconds",
        _G,
        "Age of the oldest attempt that waits at this step.",
        ("state",),
    ),
    Metric("stoilo_events_waiting", _G, "Events that are to be logged."),
    Metric("stoilo_validators_waiting", _G, "Validators' calls that wait for a jail."),
    # admission and log
    Metric("stoilo_admissions_total", _C, "Admissions signed since the start."),
    Metric("stoilo_admissions_refused_total", _C, "Signer's refusals since the start."),
    Metric("stoilo_epoch_admissions_per_minute", _G, "What the epoch allows a minute."),
    Metric(
        "stoilo_epoch_remaining_seconds", _G, "Until the last certified epoch ends."
    ),
    Metric("stoilo_log_leaves_total", _C, "Leaves acknowledged by the log."),
    Metric("stoilo_log_published_leaves", _G, "Leaves under the published checkpoint."),
    Metric(
        "stoilo_log_unpublished_leaves", _G, "Leaves that no checkpoint covers yet."
    ),
    Metric("stoilo_log_lag_seconds", _G, "How long leaves wait for a checkpoint."),
    Metric(
        "stoilo_release_remaining_seconds", _G, "Until metadata expires.", ("role",)
    ),
    # engine
    Metric("stoilo_workunits", _G, "Workunits under way."),
    Metric(
        "stoilo_results",
        _G,
        "Results of workunits, by state and outcome.",
        ("state", "outcome"),
    ),
    Metric("stoilo_results_unsent_age_seconds", _G, "Age of the oldest unsent result."),
    Metric("stoilo_validation_backlog", _G, "Results that wait for the validator."),
    Metric("stoilo_validation_age_seconds", _G, "Age of the oldest that waits so."),
    Metric("stoilo_outcomes_waiting", _G, "Workunits that the server has yet to take."),
    Metric("stoilo_accounts", _G, "Volunteers' accounts."),
    Metric("stoilo_hosts", _G, "Hosts that called lately.", ("within",)),
    Metric("stoilo_hosts_banned", _G, "Hosts that are banned."),
    # calls
    Metric(
        "stoilo_rpc_seconds",
        _H,
        "Researchers' and reviewers' calls, by method and gRPC status.",
        ("method", "code"),
    ),
    Metric(
        "stoilo_http_seconds",
        _H,
        "Volunteers' and readers' calls, by route and status class.",
        ("route", "status"),
    ),
    # machine
    Metric("stoilo_disk_free_bytes", _G, "Room on the disk of a place.", ("place",)),
    Metric("stoilo_disk_bytes", _G, "Size of the disk of a place.", ("place",)),
)
BOUNDS_S: Final = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
# Figures of the databases are read at most this often, s.
KEPT_S: Final = 5.0
PUBLIC_S: Final = 60.0  # those that anybody may ask for


def call_times(name: str) -> Histogram:
    """Return what the calls of one kind are timed with: a histogram of the catalogue."""
    metric = next(one for one in METRICS if one.name == name)
    return Histogram(name, metric.help, metric.labels, buckets=BOUNDS_S, registry=None)


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the figures come from."""

    store: Store  # the server's tables
    engine: MeasuredEngine  # workunits, results, hosts
    log: Callable[[], LogFigures]  # the log now
    pipeline: AdmissionPipeline  # counts admissions
    release: Callable[[], ReleaseStatus]  # how the release stands
    # admissions that the open epoch allows a minute; 0 for none
    epoch_rate: Callable[[], int]
    readiness: Callable[[], Readiness]  # the newest answers
    places: Mapping[str, Path]  # disks by name
    clock: Callable[[], int]  # seconds since 1970
    validators: Callable[[], int]  # how many of their calls wait
    rpc: Histogram = field(default_factory=lambda: call_times("stoilo_rpc_seconds"))
    http: Histogram = field(default_factory=lambda: call_times("stoilo_http_seconds"))
    started_at: float = field(default_factory=time.time)  # s since 1970


def fill_families(
    metrics: Iterable[Metric], figures: Iterable[Sequence[Any]]
) -> list[Family]:
    """Return what was read: each figure a metric's name, its value, its labels."""
    kinds = {_C: CounterMetricFamily, _G: GaugeMetricFamily}
    families = {
        one.name: kinds[one.kind](one.name, one.help, labels=one.labels)
        for one in metrics
        if one.kind in kinds
    }
    for name, value, *labels in figures:
        families[name].add_metric(labels, value)
    return [one for one in families.values() if one.samples]


class Collector(MetricCollector):
    """The text of all metrics; callers that come together share one reading."""

    def __init__(
        self, sources: Sources, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._sources = sources
        self._clock = clock
        self._lock = threading.Lock()
        self._text = b""
        self._at = self._public_at = float("-inf")
        self._public: dict[str, int] = {}
        # one a server: the library's own registry is the process's
        self._registry = CollectorRegistry()
        for one in (self, sources.rpc, sources.http):
            self._registry.register(one)

    def describe(self) -> list[Family]:
        """Say nothing: to be registered must not read databases."""
        return []

    def collect(self) -> Iterator[Family]:
        """Yield what is read rather than counted."""
        yield from fill_families(METRICS, read_figures(self._sources))

    def render(self) -> bytes:
        """Return the text, at most `KEPT_S` old."""
        with self._lock:
            if self._clock() - self._at > KEPT_S:
                self._text = generate_latest(self._registry)
                self._at = self._clock()
            return self._text

    def public(self) -> dict[str, int]:
        """Return what anybody may know, by its words, at most `PUBLIC_S` old.

        Empty while it cannot be read.
        """
        with self._lock:
            if self._clock() - self._public_at > PUBLIC_S:
                self._public = read_public(self._sources)
                self._public_at = self._clock()
            return self._public


def read_public(sources: Sources) -> dict[str, int]:
    """Return the few figures that the front page shows."""
    try:
        hosts = sources.engine.figures().hosts
        rows = [row for row in _tasks(sources) if row[0] == "stoilo_tasks"]
    except (StoiloError, OSError):
        return {}
    count = {TaskState(str(row[-1])): int(row[1]) for row in rows}
    return {
        "computers in the last ten minutes": hosts.get("10m", 0),
        "computers in the last day": hosts.get("1d", 0),
        "tasks under way": sum(n for state, n in count.items() if not state.final),
        "tasks finished": count[TaskState.SUCCEEDED],
    }


if TYPE_CHECKING:
    # a metric's name, its value, and its labels in the catalogue's order
    Figure = tuple[str, float] | tuple[str, float, str] | tuple[str, float, str, str]


def read_figures(sources: Sources) -> Iterator[Figure]:
    """Yield every figure that can be had; a part that fails leaves its metrics out.

    That it fails is told by ``stoilo_ready_check``.
    """
    parts = (_process, _readiness, _tasks, _attempts, _log, _release, _engine, _disks)
    for part in parts:
        try:
            found = list(part(sources))
        except (StoiloError, OSError):
            continue
        yield from found


def _process(sources: Sources) -> Iterator[Figure]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    yield "stoilo_build_info", 1, version("stoilo")
    yield "stoilo_start_time_seconds", sources.started_at
    yield "stoilo_cpu_seconds_total", usage.ru_utime + usage.ru_stime
    yield "stoilo_resident_memory_bytes", pages * os.sysconf("SC_PAGE_SIZE")
    yield "stoilo_open_files", sum(1 for _ in Path("/proc/self/fd").iterdir())


def _readiness(sources: Sources) -> Iterator[Figure]:
    found = sources.readiness()
    yield "stoilo_ready", int(found.ready)
    for check in found.checks:
        yield "stoilo_ready_check", int(check.ok), check.name


def _tasks(sources: Sources) -> Iterator[Figure]:
    task, event = schema.task, schema.event
    by_state = select(task.c.state, func.count().label("number")).group_by(task.c.state)
    unlogged = (
        select(func.count()).select_from(event).where(event.c.log_index.is_(None))
    )
    with sources.store.read() as connection:
        counts = {row.state: row.number for row in connection.execute(by_state)}
        waiting = connection.scalar(unlogged)
    for state in TaskState:  # each is named: a graph needs its zero
        yield "stoilo_tasks", counts.get(state.value, 0), state.value
    yield "stoilo_events_waiting", int(waiting or 0)


def _attempts(sources: Sources) -> Iterator[Figure]:
    attempt, now = schema.attempt, sources.clock()
    names = [state.value for state in AttemptState if state.open]
    query = (
        select(
            attempt.c.state,
            func.count().label("number"),
            func.min(attempt.c.created_at).label("oldest"),
        )
        .where(attempt.c.state.in_(names))
        .group_by(attempt.c.state)
    )
    with sources.store.read() as connection:
        found = {row.state: row for row in connection.execute(query)}
    for name in names:
        row = found.get(name)
        age = max(0, now - row.oldest) if row else 0
        yield "stoilo_attempts", row.number if row else 0, name
        yield "stoilo_attempt_age_seconds", age, name
    yield "stoilo_validators_waiting", sources.validators()
    yield "stoilo_admissions_total", sources.pipeline.signed
    yield "stoilo_admissions_refused_total", sources.pipeline.refused
    yield "stoilo_epoch_admissions_per_minute", sources.epoch_rate()


def _log(sources: Sources) -> Iterator[Figure]:
    found = sources.log()
    yield "stoilo_log_leaves_total", found.leaves
    yield "stoilo_log_published_leaves", found.published
    yield "stoilo_log_unpublished_leaves", found.leaves - found.published
    yield "stoilo_log_lag_seconds", found.lag_s


def _release(sources: Sources) -> Iterator[Figure]:
    found, now = sources.release(), sources.clock()
    yield "stoilo_epoch_remaining_seconds", max(0, found.epochs_until - now)
    for role in found.roles:
        left = max(0, role.expires - now)
        yield "stoilo_release_remaining_seconds", left, role.role


def _engine(sources: Sources) -> Iterator[Figure]:
    found = sources.engine.figures()
    yield "stoilo_workunits", found.workunits
    for (state, outcome), count in sorted(found.results.items()):
        yield "stoilo_results", count, state, outcome
    yield "stoilo_results_unsent_age_seconds", found.unsent_age_s
    yield "stoilo_validation_backlog", found.to_validate
    yield "stoilo_validation_age_seconds", found.to_validate_age_s
    yield "stoilo_outcomes_waiting", found.outcomes_waiting
    yield "stoilo_accounts", found.accounts
    for within, count in found.hosts.items():
        yield "stoilo_hosts", count, within
    yield "stoilo_hosts_banned", found.hosts_banned


def _disks(sources: Sources) -> Iterator[Figure]:
    for name, place in sources.places.items():
        usage = shutil.disk_usage(place)
        yield "stoilo_disk_free_bytes", usage.free, name
        yield "stoilo_disk_bytes", usage.total, name

"""Which mirrors are in use now: their health, what they hold, which hosts go to them.

A mirror is named to hosts only after a check has found it well, and only for files that
its own index lists. One that fails a check is out at once and is tried again later, each
time after twice the pause. What is known lies in memory: after a restart nothing is named
before it was checked.

BOINC's client goes on to the next URL when a mirror is dead, slow or lacks the file. But
wrong bytes of the right length end its task (``cs_files.cpp``: a checksum error is final).
So a host that says that its downloads failed is believed of every copy that was sent
with mirrors: they go back without counting against host or workunit, the mirrors are
checked at once, and that host is sent to none for a day. Saying so twice changes nothing:
a transaction that fails is done again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from stoilo.server.engines.mirrors import MOST_NAMED, rank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from stoilo.core.boinc.messages import FileInfo, ReportedResult, SchedulerReply
    from stoilo.server.engines.mirrors import Mirror

__all__ = ["DOWNLOAD_FAILED", "Health", "MirrorBoard", "after_bad", "after_good"]

_K = TypeVar("_K")
_V = TypeVar("_V")

DOWNLOAD_FAILED: Final = -186
"""BOINC's exit status of a task whose files could not be had (``ERR_RESULT_DOWNLOAD``)."""

CHECK_EVERY_S: Final = 60.0
LONGEST_PAUSE_S: Final = 3600.0
DISTRUST_S: Final = 86_400.0
LEFT_OVER_S: Final = 60.0
"""How long after that report copies are excused too: BOINC's client keeps a failed file
while any task needs it, so those in the reply to the report fail at once."""

HOSTS_REMEMBERED: Final = 100_000
COPIES_REMEMBERED: Final = 200_000


@dataclass(frozen=True, slots=True)
class Health:
    """What the last check of a mirror said.

    Attributes:
        holds: digests of the files that it lists; empty while it is out.
        failures: checks in a row that failed.
        check_at: when to check it again, s.
        why: what the last check found wrong, empty when nothing.
    """

    holds: frozenset[str] = frozenset()
    failures: int = 0
    check_at: float = 0.0
    why: str = "not checked yet"


def after_good(holds: frozenset[str], now: float) -> Health:
    """Return the health of a mirror that was found well."""
    return Health(holds, 0, now + CHECK_EVERY_S, "")


def after_bad(health: Health, why: str, now: float) -> Health:
    """Return the health of a mirror that failed a check: out, each time for longer."""
    pause = min(CHECK_EVERY_S * 2 ** min(health.failures, 16), LONGEST_PAUSE_S)
    return Health(frozenset(), health.failures + 1, now + pause, why)


class MirrorBoard:
    """The mirrors of a project; safe for several threads.

    Args:
        mirrors: as the operator named them.
        clock: s; only differences matter.
    """

    def __init__(self, mirrors: Iterable[Mirror], clock: Callable[[], float]) -> None:
        self._health = dict.fromkeys(mirrors, Health())
        self._clock = clock
        self._lock = threading.Lock()
        self._sent: OrderedDict[str, int] = OrderedDict()  # copies and their hosts
        self._distrusting: OrderedDict[int, float] = OrderedDict()
        self.hurried = threading.Event()
        """Set when a check should not wait."""

    @property
    def health(self) -> dict[Mirror, Health]:
        """Every mirror and how it is."""
        with self._lock:
            return dict(self._health)

    def due(self) -> tuple[Mirror, ...]:
        """Return the mirrors to be checked now."""
        now = self._clock()
        with self._lock:
            return tuple(
                one for one, health in self._health.items() if health.check_at <= now
            )

    def found_well(self, mirror: Mirror, holds: frozenset[str]) -> None:
        """Note a check that found nothing wrong."""
        with self._lock:
            self._health[mirror] = after_good(holds, self._clock())

    def found_ill(self, mirror: Mirror, why: str) -> None:
        """Note a check that failed."""
        with self._lock:
            self._health[mirror] = after_bad(self._health[mirror], why, self._clock())

    def send(
        self, reply: SchedulerReply, host: int, utc_offset_s: int | None
    ) -> SchedulerReply:
        """Return a reply that sends a host to mirrors for the files that they hold."""
        if not self._health:
            return reply
        distrusted_s = self._distrusted_s(host)
        if distrusted_s is not None:
            if distrusted_s < LEFT_OVER_S:
                self._note_sent(host, (result.name for result in reply.results))
            return reply
        with self._lock:
            holds = {one: health.holds for one, health in self._health.items()}
        ranked = rank((one for one, held in holds.items() if held), host, utc_offset_s)
        files = tuple(_named(file, ranked, holds) for file in reply.files)
        self._note_sent(host, _copies_with(reply, files))
        return replace(reply, files=files)

    def excuses(self, host: int, report: ReportedResult) -> bool:
        """Say whether a failed copy is the mirrors' fault, as far as one can know.

        From the first such copy on the host is sent to no mirror for `DISTRUST_S`, so what
        is excused in that time was sent before.
        """
        if report.exit_status != DOWNLOAD_FAILED:
            return False
        begins = self._distrusted_s(host) is None
        with self._lock:
            if self._sent.get(report.name) != host:
                return False
            if not begins:
                return True
            now = self._clock()
            _remember(self._distrusting, host, now, HOSTS_REMEMBERED)
            for mirror, health in self._health.items():
                if health.holds:
                    self._health[mirror] = replace(health, check_at=now)
        self.hurried.set()
        return True

    def _distrusted_s(self, host: int) -> float | None:
        """Return for how long a host has had its files from the project itself, s.

        None when it may be sent to mirrors.
        """
        now = self._clock()
        with self._lock:
            since = self._distrusting.get(host)
        return None if since is None or now - since >= DISTRUST_S else now - since

    def _note_sent(self, host: int, copies: Iterable[str]) -> None:
        """Note copies that a host may fail through no fault of its own."""
        with self._lock:
            for copy in copies:
                _remember(self._sent, copy, host, COPIES_REMEMBERED)


def _named(
    file: FileInfo, ranked: tuple[Mirror, ...], holds: dict[Mirror, frozenset[str]]
) -> FileInfo:
    """Return a file with the first mirrors that hold it."""
    having = [one for one in ranked if file.name in holds[one]]
    urls = tuple(f"{one.url}{file.name}" for one in having[:MOST_NAMED])
    return replace(file, mirrors=urls) if urls else file


def _copies_with(reply: SchedulerReply, files: tuple[FileInfo, ...]) -> Iterator[str]:
    """Yield the copies of a reply that need a file for which mirrors are named."""
    mirrored = {file.name for file in files if file.mirrors}
    workunits = {
        workunit.name
        for workunit in reply.workunits
        if any(ref.file_name in mirrored for ref in workunit.files)
    }
    for result in reply.results:
        if result.workunit in workunits:
            yield result.name


def _remember(noted: OrderedDict[_K, _V], key: _K, value: _V, most: int) -> None:
    """Note something, forgetting what was noted longest ago where it is too much."""
    noted[key] = value
    noted.move_to_end(key)
    while len(noted) > most:
        noted.popitem(last=False)

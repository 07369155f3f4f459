"""Which mirrors are in use now: their health, what they hold, which hosts go to them.

A mirror is named to hosts only after a check has found it well, and only for files that
its own index lists. One that fails a check is out at once and is tried again later, each
time after twice the pause. What is known lies in memory: after a restart nothing is named
before it was checked.

BOINC's client goes on to the next URL when a mirror is dead, slow or lacks the file. But
wrong bytes of the right length end its task (``cs_files.cpp``: a checksum error is final).
So a host that says that its downloads failed, after it was sent to mirrors, is believed
once: the copy goes back without counting against host or workunit, the mirrors are checked
at once, and that host is sent to none for a day.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from stoilo.server.engines.mirrors import MOST_NAMED, rank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stoilo.executor.messages import FileInfo, ReportedResult, SchedulerReply
    from stoilo.server.engines.mirrors import Mirror

__all__ = ["DOWNLOAD_FAILED", "Health", "MirrorBoard", "after_bad", "after_good"]

DOWNLOAD_FAILED: Final = -186
"""BOINC's exit status of a task whose files could not be had (``ERR_RESULT_DOWNLOAD``)."""

CHECK_EVERY_S: Final = 60.0
LONGEST_PAUSE_S: Final = 3600.0
DISTRUST_S: Final = 86_400.0
HOSTS_REMEMBERED: Final = 100_000


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
        self._sent: OrderedDict[int, float] = OrderedDict()
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
        if not self._health or self._is_distrusting(host):
            return reply
        with self._lock:
            holds = {one: health.holds for one, health in self._health.items()}
        ranked = rank((one for one, held in holds.items() if held), host, utc_offset_s)
        files = tuple(_named(file, ranked, holds) for file in reply.files)
        if any(file.mirrors for file in files):
            with self._lock:
                _remember(self._sent, host, self._clock())
        return replace(reply, files=files)

    def excuses(self, host: int, report: ReportedResult) -> bool:
        """Say whether a failed copy is the mirrors' fault, as far as one can know.

        The same host is excused once in `DISTRUST_S`, in which it is sent to no mirror.
        """
        if report.exit_status != DOWNLOAD_FAILED:
            return False
        now = self._clock()
        with self._lock:
            recently = now - self._sent.pop(host, -DISTRUST_S) < DISTRUST_S
            if not recently:
                return False
            _remember(self._distrusting, host, now)
            for mirror, health in self._health.items():
                if health.holds:
                    self._health[mirror] = replace(health, check_at=now)
        self.hurried.set()
        return True

    def _is_distrusting(self, host: int) -> bool:
        """Say whether a host shall have its files from the project itself."""
        with self._lock:
            since = self._distrusting.get(host)
        return since is not None and self._clock() - since < DISTRUST_S


def _named(
    file: FileInfo, ranked: tuple[Mirror, ...], holds: dict[Mirror, frozenset[str]]
) -> FileInfo:
    """Return a file with the first mirrors that hold it."""
    having = [one for one in ranked if file.name in holds[one]]
    urls = tuple(f"{one.url}{file.name}" for one in having[:MOST_NAMED])
    return replace(file, mirrors=urls) if urls else file


def _remember(hosts: OrderedDict[int, float], host: int, now: float) -> None:
    """Note a host, forgetting the one noted longest ago where there are too many."""
    hosts[host] = now
    hosts.move_to_end(host)
    while len(hosts) > HOSTS_REMEMBERED:
        hosts.popitem(last=False)

"""Whether the server can take and finish work now, and if not, why.

Alive (`/healthz`) means that the process answers. Ready (`/readyz`, gRPC health) means that
every check below says yes; each is a value, so that what is shown is what was decided.
A thread asks, not the caller: an answer never waits for what may hang.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy import select

from stoilo.core.background import Repeater
from stoilo.core.errors import StoiloError
from stoilo.server.db import schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from stoilo.server.db.store import Store
    from stoilo.signer.release_status import ReleaseStatus


LOGGER = logging.getLogger(__name__)

# An answer of a check that is older than this says nothing any more, s
STALE_S: Final = 30.0

INTERVAL_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Check:
    """One question: its name, and why the answer is no (empty: it is yes)."""

    name: str
    reason: str = ""

    @property
    def ok(self) -> bool:
        """Whether the answer is yes."""
        return not self.reason


@dataclass(frozen=True, slots=True)
class Readiness:
    """All checks at one moment; none at all is not ready."""

    checks: tuple[Check, ...] = ()

    @property
    def ready(self) -> bool:
        """Whether every check says yes."""
        return bool(self.checks) and all(check.ok for check in self.checks)


def ask(name: str, probe: Callable[[], str | None]) -> Check:
    """Return a probe's answer; our errors are answers too, by code and message."""
    try:
        return Check(name, probe() or "")
    except StoiloError as error:
        return Check(name, f"{error.message} [{error.code}]"[:200])
    except Exception:  # a probe's edge: its fault must not end the watch
        LOGGER.exception("the check %s failed", name)
        return Check(name, "the check itself failed")


class ReadinessThread:
    """Asks all probes again and again, and keeps the newest answers."""

    def __init__(
        self,
        probes: Mapping[str, Callable[[], str | None]],  # by name
        clock: Callable[[], float] = time.monotonic,  # monotonic seconds
    ) -> None:
        self._probes = dict(probes)
        self._told: Callable[[bool], None] = lambda _ready: None
        self._clock = clock
        self._newest = Readiness()
        self._at = clock()
        self._said: bool | None = None
        self._thread = Repeater("stoilo-readiness", (self._round,), INTERVAL_S)

    def tell(self, told: Callable[[bool], None]) -> None:
        """Call `told`, in the thread that looks, when ready turns into not or back."""
        self._told = told

    def look(self) -> Readiness:
        """Ask every probe now, in this thread, and remember the answers."""
        found = Readiness(tuple(ask(*one) for one in self._probes.items()))
        self._newest, self._at = found, self._clock()
        if found.ready != self._said:
            self._said = found.ready
            bad = [f"{one.name}: {one.reason}" for one in found.checks if not one.ok]
            if bad:
                LOGGER.warning("not ready: %s", "; ".join(bad))
            self._told(found.ready)
        return found

    def newest(self) -> Readiness:
        """Return the newest answers; where they are too old, that is the answer."""
        age = self._clock() - self._at
        if age <= STALE_S:
            return self._newest
        return Readiness((Check("watch", f"no check has answered for {age:.0f} s"),))

    def start(self) -> None:
        """Look once, then go on in a thread."""
        self.look()
        self._thread.start()

    def stop(self) -> None:
        """End the thread; one that hangs in a probe is left to the process' end."""
        self._thread.stop(INTERVAL_S + 1)

    def _round(self) -> int:
        self.look()
        return 0  # then pause


@dataclass(frozen=True, slots=True)
class LogFigures:
    """One moment of the log."""

    leaves: int  # acknowledged
    published: int  # leaves under the newest checkpoint
    lag_s: float  # for how long, at least, a leaf has waited for a checkpoint, s
    trouble: str = ""  # what keeps the log from publishing; empty for nothing known


class HeadFreshness:
    """Remembers since when leaves have been waiting; thread-safe.

    An idle log publishes nothing, so the checkpoint's own age says nothing. What counts is
    how long ago the oldest leaf was seen here that no checkpoint covers yet.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._mark: tuple[int, float] | None = None

    def lag(self, leaves: int, published: int, now: float) -> float:
        """Return for how long leaves have waited, s; `now` is monotonic."""
        with self._lock:
            if self._mark is not None and published >= self._mark[0]:
                self._mark = None
            if self._mark is None and published < leaves:
                self._mark = (leaves, now)
            return 0.0 if self._mark is None else max(0.0, now - self._mark[1])


# Below this the server takes no more work: uploads stop at half of it
FREE_BYTES: Final = 128 * 1024 * 1024

# How long a leaf may wait for a checkpoint, s
LAG_S: Final = 30.0


def check_store(store: Store) -> None:
    """Ask the server's database for a row; counting all of them takes too long."""
    with store.read() as connection:
        connection.execute(select(schema.account.c.id).limit(1)).first()


def check_log(figures: Callable[[], LogFigures]) -> str:
    """Say whether the log is stopped, or behind its leaves."""
    found = figures()
    if found.lag_s <= LAG_S:
        return found.trouble
    waiting = found.leaves - found.published
    return found.trouble or (
        f"{waiting} leaves have waited {found.lag_s:.0f} s for a checkpoint"
    )


def check_release(status: Callable[[], ReleaseStatus]) -> str:
    """Say whether volunteers would still accept what is admitted now."""
    found = status()
    if found.trouble:
        return f"the release cannot be relied on [{found.trouble}]"
    if found.epochs == "expired":
        return "no gate epoch is open [STO-K024]"
    return "" if found.state != "expired" else "the release's metadata has expired"


def check_disk(places: Iterable[Path], least: int = FREE_BYTES) -> str:
    """Say whether a disk is nearly full; names no path."""
    try:
        free = min(shutil.disk_usage(place).free for place in places)
    except OSError as error:
        return f"a disk cannot be asked (errno {error.errno})"
    return "" if free >= least else f"{free} bytes are free, {least} are needed"

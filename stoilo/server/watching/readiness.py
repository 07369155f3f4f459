"""Whether the server can take and finish work now, and if not, why.

Alive (`/healthz`) means that the process answers. Ready (`/readyz`, gRPC health) means that
every check below says yes; each is a value, so that what is shown is what was decided.
A thread asks, not the caller: an answer never waits for what may hang.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stoilo.core.errors import StoiloError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


LOGGER = logging.getLogger(__name__)

STALE_S: Final = 30.0
"""An answer of a check that is older than this says nothing any more, s."""

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


def ask(name: str, probe: Callable[[], str]) -> Check:
    """Return a probe's answer; our errors are answers too, by code and message."""
    try:
        return Check(name, probe())
    except StoiloError as error:
        return Check(name, f"{error.message} [{error.code}]"[:200])
    except Exception:  # a probe's edge: its fault must not end the watch
        LOGGER.exception("the check %s failed", name)
        return Check(name, "the check itself failed")


class Watchman:
    """Asks all probes again and again, and keeps the newest answers.

    Args:
        probes: by name.
        clock: monotonic seconds.
        interval_s: between two rounds, s.
    """

    def __init__(
        self,
        probes: Mapping[str, Callable[[], str]],
        clock: Callable[[], float] = time.monotonic,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._probes = dict(probes)
        self._told: Callable[[bool], None] = lambda _ready: None
        self._clock = clock
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._newest = Readiness()
        self._at = clock()
        self._said: bool | None = None
        self._thread = threading.Thread(
            target=self._run, name="stoilo-watchman", daemon=True
        )

    def tell(self, told: Callable[[bool], None]) -> None:
        """Call `told`, in the thread that looks, when ready turns into not or back."""
        self._told = told

    def look(self) -> Readiness:
        """Ask every probe now, in this thread, and remember the answers."""
        found = Readiness(tuple(ask(*one) for one in self._probes.items()))
        self._newest, self._at = found, self._clock()
        if found.ready != self._said:
            self._said = found.ready
            if not found.ready:
                bad = [
                    f"{one.name}: {one.reason}" for one in found.checks if not one.ok
                ]
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
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(self._interval_s + 1)

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            self.look()

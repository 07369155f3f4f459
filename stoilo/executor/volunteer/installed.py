"""Tasks judged and run by this installation itself, without launcher and frozen trees.

The same verifier, in this process, with the libraries that are installed beside it; one warm
jail for each level.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable
from pathlib import Path

from stoilo.core.errors import InternalError
from stoilo.core.levels import Level
from stoilo.executor.slot.executor import CANCELLED, HoldingExecutor
from stoilo.executor.verifier.execution import VerifiedExecutor
from stoilo.executor.verifier.targets import TrustedRelease
from stoilo.executor.verifier.workunit import HostState, Work
from stoilo.flavors.manifest import shipped_flavors
from stoilo.sandbox.process.channel import TASK_JOB
from stoilo.sandbox.process.exchange import Exchange
from stoilo.sandbox.process.supervisor import Jail


class InstalledRuntimes:
    """Runs tasks with the libraries of this installation; see `Runtimes`.

    Args:
        make: makes a jail for a level.
    """

    platform = ""

    def __init__(
        self, make: Callable[[Level], Jail] = lambda level: Jail(level, TASK_JOB)
    ) -> None:
        self._make = make
        self._flavors = installed_flavors()
        self._lock = threading.Lock()
        self._jails: dict[str, Jail] = {}
        self._closed = False

    def flavors(self, trust: TrustedRelease) -> frozenset[str]:
        """Return the shipped flavors whose libraries are all installed here."""
        del trust
        return self._flavors

    def jail(
        self, level: Level, flavor: str, trust: TrustedRelease, archive: Path | None
    ) -> Jail:
        """Return the warm jail of `level`, every flavor's; STO-S008 once closed."""
        del flavor, trust, archive
        with self._lock:
            if self._closed:
                raise InternalError(CANCELLED, "this executor is closed")
            if level.digest not in self._jails:
                self._jails[level.digest] = self._make(level)
            return self._jails[level.digest]

    def close(self) -> None:
        """End every jail; none is made any more."""
        with self._lock:
            for jail in self._jails.values():
                jail.close()
            self._jails.clear()
            self._closed = True


def installed_flavors() -> frozenset[str]:
    """Return the ids of the shipped flavors whose libraries are all installed here."""
    return frozenset(
        flavor.digest
        for flavor in shipped_flavors()
        if all(
            importlib.util.find_spec(module.partition(".")[0])
            for module in flavor.modules
        )
    )


class InstalledExecutor(HoldingExecutor[Exchange]):
    """Several copies at once, in jails of this installation; see `VerifiedExecutor`.

    Args:
        root: the trusted TUF root metadata.
        state: this host's own directory.
        host: what this volunteer allows.
        clock: s since 1970.
    """

    def __init__(
        self, root: bytes, state: Path, host: HostState, *, clock: Callable[[], float]
    ) -> None:
        super().__init__(Exchange.cancel)
        self._verified = VerifiedExecutor(
            root, state, host, clock=clock, runtimes=InstalledRuntimes()
        )

    def execute(self, work: Work) -> bytes:
        """Return the result file's bytes; see `Executor`."""
        # Known as running from the first check on, so that it can be cancelled while
        # verified.
        with self.hold(work.result):
            return self._verified.execute(
                work, lambda run: self.watch(work.result, run, wait=True)
            )

    def close(self) -> None:
        """End every run and every jail."""
        super().close()
        self._verified.close()

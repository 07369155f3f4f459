"""Tasks judged and run by this installation itself, without launcher and frozen trees.

The same verifier, in this process, with the libraries that are installed beside it; one warm
jail for each level and set of libraries, as many as memory allows.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path

from stoilo.core.errors import PolicyRefusal
from stoilo.core.levels import Level
from stoilo.core.libraries import level_order
from stoilo.executor.slot.executor import HoldingExecutor
from stoilo.executor.verifier.checkpoints import AppStatus
from stoilo.executor.verifier.execution import VerifiedExecutor
from stoilo.executor.verifier.targets import TrustedRelease
from stoilo.executor.verifier.workunit import HostState, Work
from stoilo.flavors.manifest import held_libraries, is_installed, shipped_flavors
from stoilo.sandbox.process.channel import TASK_JOB
from stoilo.sandbox.process.exchange import Exchange
from stoilo.sandbox.process.supervisor import Jail
from stoilo.sandbox.process.warm_jails import (
    WarmJail,
    WarmJails,
    memory_for_zygotes,
)


class InstalledRuntimes:
    """Runs tasks with the libraries of this installation; see `Runtimes`.

    Args:
        make: makes a jail for a level.
        most_bytes: what the warm zygotes may take together.
    """

    platform = ""

    def __init__(
        self,
        make: Callable[[Level], Jail] = lambda level: Jail(level, TASK_JOB),
        most_bytes: int | None = None,
    ) -> None:
        self._make = make
        self._flavors = installed_flavors()
        most = memory_for_zygotes() if most_bytes is None else most_bytes
        self._jails = WarmJails(most)

    def flavors(self, trust: TrustedRelease) -> frozenset[str]:
        """Return the shipped flavors whose libraries are all installed here."""
        del trust
        return self._flavors

    def jail(
        self, level: Level, flavor: str, trust: TrustedRelease, archive: Path | None
    ) -> WarmJail:
        """Return the warm jail of `level` with its libraries; STO-S008 once closed.

        Raises:
            PolicyRefusal: STO-X013, they are not the flavor's of this installation.
        """
        del trust, archive
        # Without a part in the release only our own files say what a flavor holds.
        if level.libraries != _usable(flavor, level):
            raise PolicyRefusal(
                "STO-X013", "the task's libraries are not those that are installed here"
            )
        key = (level.digest, level.libraries)
        return self._jails.of(key, lambda: self._make(level))

    def close(self) -> None:
        """End every jail; none is made any more."""
        self._jails.close()


def _usable(flavor: str, level: Level) -> tuple[str, ...]:
    """Return the digests of a shipped flavor's libraries that `level` may use."""
    return tuple(
        library.digest
        for one in shipped_flavors()
        if one.digest == flavor
        for library in held_libraries(one)
        if level_order(library) <= level.order
    )


def installed_flavors() -> frozenset[str]:
    """Return the ids of the shipped flavors whose libraries are all installed here.

    Those that are described, in a version that is.
    """
    return frozenset(
        flavor.digest
        for flavor in shipped_flavors()
        if all(map(is_installed, held_libraries(flavor)))
        and all(
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
        own = None if host.limits is None else host.limits.memory_bytes
        self._verified = VerifiedExecutor(
            root,
            state,
            host,
            clock=clock,
            runtimes=InstalledRuntimes(most_bytes=memory_for_zygotes(own)),
        )

    def execute(self, work: Work) -> bytes:
        """Return the result file's bytes; see `Executor`."""
        # Known as running from the first check on, so that it can be cancelled while
        # verified.
        with self.hold(work.result):
            return self._verified.execute(
                work, lambda run: self.watch(work.result, run, wait=True)
            )

    def progress(self) -> Mapping[str, AppStatus]:
        """Return the runs' processor time; how far they are nobody asks them here."""
        return {name: AppStatus(run.cpu_s()) for name, run in self.running().items()}

    def close(self) -> None:
        """End every run and every jail."""
        super().close()
        self._verified.close()

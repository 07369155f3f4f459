"""Where verified tasks run: in jails started from this installation, or from frozen trees.

A frozen verifier holds no libraries for tasks: each flavor is an unpacked tree of its own,
whose every byte is hashed again before it starts. An unfrozen executor uses what is
installed beside it. Both keep one warm jail for each level and runtime.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, Protocol

from stoilo.core.digests import Digest
from stoilo.core.errors import InternalError, PolicyRefusal, TrustError
from stoilo.core.levels import Level
from stoilo.executor.verifier.targets import PartFile, TrustedRelease
from stoilo.executor.verifier.trees import (
    WantedTree,
    check_tree,
    evict_trees,
    hold_tree,
    set_aside,
)
from stoilo.sandbox.process.channel import TASK_JOB
from stoilo.sandbox.process.supervisor import Jail

RUNTIME_PROGRAM: Final = "stoilo-runtime"
"""The one program of a flavor's tree: the zygote; nothing on its command line."""

DAMAGED: Final = "STO-F006"


class Runtimes(Protocol):
    """Gives a warm jail for a task whose verification has ended well."""

    platform: str
    """Of frozen trees; empty where tasks run in what is installed."""

    def flavors(self, trust: TrustedRelease) -> frozenset[str]:
        """Return the ids of the flavors that could run here."""
        ...

    def jail(
        self, level: Level, flavor: str, trust: TrustedRelease, archive: Path | None
    ) -> Jail:
        """Return the warm jail for tasks of `level` that need `flavor`."""
        ...

    def close(self) -> None:
        """End every jail; no other starts."""
        ...


def task_jail(level: Level) -> Jail:
    """Return a warm jail, for tasks of `level`, of what is installed here."""
    return Jail(level, TASK_JOB)


class InstalledRuntimes:
    """Runs tasks with the libraries of this installation.

    Args:
        make: makes a jail for a level.
    """

    platform = ""

    def __init__(self, make: Callable[[Level], Jail] = task_jail) -> None:
        self._make = make
        self._jails = WarmJails()
        self._flavors = installed_flavors()

    def flavors(self, trust: TrustedRelease) -> frozenset[str]:
        """Return the shipped flavors whose libraries are all installed here."""
        del trust
        return self._flavors

    def jail(
        self, level: Level, flavor: str, trust: TrustedRelease, archive: Path | None
    ) -> Jail:
        """Return the warm jail of `level`; every flavor here is the same."""
        del flavor, trust, archive
        return self._jails.get(level.digest, lambda _: self._make(level))

    def close(self) -> None:
        """End every jail."""
        self._jails.close()


def frozen_jail(level: Level, command: Sequence[str]) -> Jail:
    """Return a warm jail whose zygote is a frozen runtime."""
    return Jail(level, TASK_JOB, command=lambda: command)


class TreeRuntimes:
    """Runs tasks with the frozen flavors of a release.

    Args:
        directory: this computer's own, of unpacked trees.
        platform: of this computer.
        cap_bytes: what the trees may take.
        make: makes a jail for a level, from a command.
    """

    def __init__(
        self,
        directory: Path,
        platform: str,
        cap_bytes: int,
        *,
        make: Callable[[Level, Sequence[str]], Jail] = frozen_jail,
    ) -> None:
        self.platform = platform
        self._directory = directory
        self._cap = cap_bytes
        self._make = make
        self._jails = WarmJails()

    def flavors(self, trust: TrustedRelease) -> frozenset[str]:
        """Return the flavors that the release has for this computer."""
        return frozenset(
            part.flavor
            for part in trust.parts
            if part.flavor and part.platform == self.platform
        )

    def jail(
        self, level: Level, flavor: str, trust: TrustedRelease, archive: Path | None
    ) -> Jail:
        """Return the warm jail, in the flavor's tree, for tasks of `level`.

        Raises:
            TrustError: STO-F006 and the codes of `read_archive`: archive or
                tree are not the release's.
            PolicyRefusal: STO-X013 there is none for this computer, STO-X013 no room.
            InternalError: STO-X008 the disk refuses.
        """
        part = trust.flavor_part(flavor, self.platform)
        if part is None:
            raise PolicyRefusal(
                "STO-X013", f"the release has no such flavor for {self.platform}"
            )
        key = f"{level.digest}:{part.tree}"
        return self._jails.get(
            key, lambda held: self._start(held, level, part, archive)
        )

    def close(self) -> None:
        """End every jail and let the trees go; the least used, where the cap fell."""
        self._jails.close()
        with suppress(OSError):  # no reason to lose a result that is there
            evict_trees(self._directory, self._cap)

    def _start(
        self, held: ExitStack, level: Level, part: PartFile, archive: Path | None
    ) -> Jail:
        digest = Digest(part.tree)
        wanted = WantedTree(digest, Digest(part.archive.sha256), part.archive.size)
        try:
            # Held while the jail lives, so that nobody evicts the tree.
            place = held.enter_context(
                hold_tree(self._directory, wanted, archive, self._cap)
            )
            check_tree(place, digest)
            return self._make(level, (str(place / RUNTIME_PROGRAM),))
        except TrustError as error:
            if error.code == DAMAGED:
                held.close()
                set_aside(self._directory, digest)
            raise


class WarmJails:
    """Jails by key, one each, with what they hold while they live; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jails: dict[str, tuple[Jail, ExitStack]] = {}
        self._closed = False

    def get(self, key: str, make: Callable[[ExitStack], Jail]) -> Jail:
        """Return the jail of `key`, made when first asked for; STO-S008 once closed."""
        with self._lock:
            if self._closed:
                raise InternalError("STO-S008", "this executor is closed")
            if key not in self._jails:
                with ExitStack() as held:
                    self._jails[key] = make(held), held.pop_all()
            return self._jails[key][0]

    def close(self) -> None:
        """End every jail; none is made any more."""
        with self._lock:
            for jail, held in self._jails.values():
                jail.close()
                held.close()  # the tree goes after the zygote that ran in it
            self._jails.clear()
            self._closed = True


def installed_flavors() -> frozenset[str]:
    """Return the ids of the shipped flavors whose libraries are all installed here."""
    from stoilo.flavors.manifest import shipped_flavors  # noqa: PLC0415 - not frozen

    return frozenset(
        flavor.digest
        for flavor in shipped_flavors()
        if all(
            importlib.util.find_spec(module.partition(".")[0])
            for module in flavor.modules
        )
    )

"""Warm jails by what they hold, as many as memory allows: the least used is ended first.

Each has a zygote that has imported what its runs may use. They start when they are first
needed and stay, until together they take more than they may; one that runs something is
never ended. Thread-safe.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stoilo.core.errors import InternalError
from stoilo.sandbox.process.supervisor import Jail

if TYPE_CHECKING:
    from stoilo.core.types import RunLimits
    from stoilo.sandbox.process.exchange import Exchange
    from stoilo.sandbox.process.report import JailReport

SHARE_OF_MEMORY: Final = 4
"""Warm zygotes take at most one part in this many of a computer's memory."""

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def memory_for_zygotes(own_limit: int | None = None) -> int:
    """Return what all warm zygotes of this computer may take, bytes.

    `own_limit`: what its owner lets runs take; it only lowers.
    """
    share = _PAGE * os.sysconf("SC_PHYS_PAGES") // SHARE_OF_MEMORY
    return share if own_limit is None else min(share, own_limit)


def zygote_bytes(jail: Jail, proc: Path = Path("/proc")) -> int:
    """Return what a jail's zygote takes, bytes: its share of pages, or all of them.

    0 once it has ended.
    """
    first = str(jail.zygote_pid)
    try:
        # As root it is a child of the process that waits for it outside of its namespace.
        more = (proc / first / "task" / first / "children").read_text().split()
    except OSError:
        more = []
    return sum(_bytes_of(proc / pid) for pid in (first, *more))


def _bytes_of(process: Path) -> int:
    try:
        for line in (process / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    except OSError:  # not every kernel tells, nor of every process
        pass
    try:
        return _PAGE * int((process / "statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0


@dataclass(slots=True, eq=False)
class _Kept:
    """What one key has; `turn` is held while its jail starts, which takes seconds."""

    make: Callable[[], Jail]
    turn: threading.Lock = field(default_factory=threading.Lock)
    jail: Jail | None = None
    users: int = 0  # that run something in it now
    used: int = 0  # by the owner's own count


class WarmJail:
    """One key's jail; started again where it was ended meanwhile."""

    def __init__(self, owner: WarmJails, key: Hashable) -> None:
        self._owner = owner
        self._key = key

    def run(
        self,
        request: bytes,
        limits: RunLimits,
        *,
        watch: Callable[[Exchange], object] | None = None,
    ) -> JailReport:
        """Run one request; see `Jail.run`, and `Jail` where it has to start first."""
        jail = self._owner.take(self._key)
        try:
            return jail.run(request, limits, watch=watch)
        finally:
            self._owner.give(self._key)


class WarmJails:
    """Jails by key, warm while memory allows.

    Args:
        most_bytes: what their zygotes may take together; the one that is needed starts
            though it alone takes more.
        measure: returns what a jail's zygote takes, bytes.
    """

    def __init__(
        self, most_bytes: int, measure: Callable[[Jail], int] = zygote_bytes
    ) -> None:
        self._most = most_bytes
        self._measure = measure
        self._lock = threading.Lock()
        self._kept: dict[Hashable, _Kept] = {}
        self._count = 0
        self._closed = False

    def of(self, key: Hashable, make: Callable[[], Jail]) -> WarmJail:
        """Return the jail of `key`, which `make` starts where it is not warm.

        Raises as `Jail`; ``STO-S008`` once closed.
        """
        with self._lock:
            self._kept.setdefault(key, _Kept(make))
        self.take(key)
        self.give(key)
        return WarmJail(self, key)

    def warm(self) -> tuple[Hashable, ...]:
        """Return the keys of those that are warm now."""
        with self._lock:
            return tuple(key for key, one in self._kept.items() if one.jail is not None)

    def take(self, key: Hashable) -> Jail:
        """Return the jail of a known `key`, warm until `give`; raises as `of`."""
        with self._lock:
            if self._closed:
                raise InternalError("STO-S008", "this executor is closed")
            kept, self._count = self._kept[key], self._count + 1
            kept.users, kept.used = kept.users + 1, self._count
        try:
            # Only those that need the same one wait while it starts.
            with kept.turn:
                jail = kept.jail
                if jail is None:
                    jail = self._start(kept)
                    self._make_room()
                return jail
        except BaseException:
            self.give(key)
            raise

    def give(self, key: Hashable) -> None:
        """Say that a run has ended for which `take` was called."""
        with self._lock:
            self._kept[key].users -= 1

    def close(self) -> None:
        """End every zygote, and runs with them; none starts any more."""
        with self._lock:
            self._closed = True
            jails = [one.jail for one in self._kept.values() if one.jail is not None]
            for one in self._kept.values():
                one.jail = None
        for jail in jails:
            jail.close()

    def _start(self, kept: _Kept) -> Jail:
        jail = kept.make()
        with self._lock:
            if not self._closed:
                kept.jail = jail
                return jail
        jail.close()
        raise InternalError("STO-S008", "this executor is closed")

    def _make_room(self) -> None:
        """End jails that run nothing, the least used first, until the others fit."""
        with self._lock:
            warm = [one for one in self._kept.values() if one.jail is not None]
        if len(warm) < 2:  # noqa: PLR2004 - one alone stays, whatever it takes
            return
        sizes = {id(one): self._measure(one.jail) for one in warm if one.jail}
        total = sum(sizes.values())
        for one in sorted(warm, key=lambda one: one.used):
            if total <= self._most:
                return
            with self._lock:
                if one.users:
                    continue
                jail, one.jail = one.jail, None
            if jail is not None:
                jail.close()
                total -= sizes.get(id(one), 0)

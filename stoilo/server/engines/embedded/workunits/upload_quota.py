"""Who may have how much of the disk for result files, also while they are on their way.

What is announced is counted before a byte of it is taken, so that uploads that come at
the same time cannot fill the disk together. No account and no host gets more than its
share of what there is; what strangers hold, who made accounts over the web and have helped
with nothing yet, leaves room for the others however many they are. Nothing here opens a
file: free space, sizes and times come in as arguments.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from typing import Final

from stoilo.core.errors import InternalError

MIB: Final = 1024 * 1024
# The most that a level lets a task return, with its output and header
LARGEST_RESULT: Final = 544 * MIB


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """How much of the disk result files may take."""

    free_bytes: int = 64 * MIB  # always left free on the disk
    most_bytes: int = 0  # all result files together; 0: what the disk has
    account_share: float = 0.2  # of an account, part of what all may take
    host_share: float = 0.1  # of a host
    # of all newcomers together; each has `always_bytes` at most, or one larger file
    newcomers_share: float = 0.25
    # an account or host may have that much whatever its share is, as long as there is
    # room at all
    always_bytes: int = 64 * MIB
    one_bytes: int = 0  # or one file as large as that
    stale_s: int = 6 * 3600  # a part to which nothing came for so long is removed, s


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose result a file is."""

    user_id: int  # row of the account
    host_id: int  # row of the host
    # none of the account's results was ever valid, and it is a stranger's
    newcomer: bool = False


@dataclass(frozen=True, slots=True)
class _Holding:
    """One file or part."""

    owner: Owner  # whose
    here: int  # bytes on the disk
    coming: int  # bytes that were announced and are not here yet
    touched_at: int  # when bytes last came, s
    whole: bool  # it is complete

    @property
    def size(self) -> int:
        """Bytes that it takes, or will."""
        return self.here + self.coming


class UploadRoom:
    """Bytes of result files by their owners; for any thread."""

    def __init__(self, limits: UploadLimits) -> None:
        self.limits = limits
        self._held: dict[str, _Holding] = {}
        self._here = 0
        self._coming = 0
        self._of_account: Counter[int] = Counter()
        self._of_host: Counter[int] = Counter()
        self._of_newcomers = 0
        self._lock = threading.Lock()

    def reserve(
        self,
        name: str,  # of the upload
        owner: Owner,  # whose
        size: int,  # of the whole file as announced, bytes
        here: int,  # of it that is on the disk and stays, bytes
        free: int,  # on the disk now, bytes
        now: int,  # s
    ) -> None:
        """Set room aside for a file before it comes.

        Raises:
            InternalError: ``STO-R030`` for a full disk, ``STO-E110`` for a used-up
                share: try again later. What was held before is held on.
        """
        with self._lock:
            before = self._held.get(name)
            self._put(name, _Holding(owner, here, size - here, now, whole=False))
            try:
                self._check(owner, size, free)
            except InternalError:
                self._put(name, before)
                raise

    def note(self, name: str, here: int, coming: int, now: int) -> None:
        """Note how much of a reserved file is here and still to come."""
        with self._lock:
            held = self._held.get(name)
            if held is not None:
                self._put(
                    name, _Holding(held.owner, here, coming, now, whole=held.whole)
                )

    def load(
        self, name: str, owner: Owner, here: int, now: int, *, whole: bool
    ) -> None:
        """Note a file that is on the disk."""
        with self._lock:
            self._put(name, _Holding(owner, here, 0, now, whole))

    def holds(self, name: str) -> bool:
        """Say whether something is held for a file."""
        with self._lock:
            return name in self._held

    def release(self, name: str) -> None:
        """Forget a file that is not there any more."""
        with self._lock:
            self._put(name, None)

    def stale(self, now: int) -> tuple[str, ...]:
        """Return the parts to which nothing came for `UploadLimits.stale_s`."""
        before = now - self.limits.stale_s
        with self._lock:
            return tuple(
                name
                for name, held in self._held.items()
                if not held.whole and held.touched_at < before
            )

    @property
    def taken(self) -> int:
        """Bytes of all files, here or announced."""
        with self._lock:
            return self._here + self._coming

    def _put(self, name: str, holding: _Holding | None) -> None:
        """Hold that for a file in place of what was held; under the lock."""
        before = self._held.pop(name, None)
        for held, sign in ((before, -1), (holding, 1)):
            if held is not None:
                self._here += sign * held.here
                self._coming += sign * held.coming
                self._of_account[held.owner.user_id] += sign * held.size
                self._of_host[held.owner.host_id] += sign * held.size
                self._of_newcomers += sign * held.size * held.owner.newcomer
        if holding is not None:
            self._held[name] = holding

    def _check(self, owner: Owner, size: int, free: int) -> None:
        """Raise when more is held than the disk has, or all, or the owner, may have.

        One file of up to `UploadLimits.one_bytes` may everybody send: on a new project
        all are newcomers.
        """
        limits = self.limits
        if free < self._coming + limits.free_bytes:
            raise InternalError("STO-R030", "the project's disk is nearly full")
        most = limits.most_bytes or self._here + free - limits.free_bytes
        if self._here + self._coming > most:
            raise _no_room("all result files together have")
        one = min(size, limits.one_bytes)
        for who, held, share in (
            ("this account has", self._of_account[owner.user_id], limits.account_share),
            ("this computer has", self._of_host[owner.host_id], limits.host_share),
        ):
            part = 0 if owner.newcomer else int(share * most)
            if held > max(limits.always_bytes, part, one):
                raise _no_room(who)
        strangers = max(limits.always_bytes, int(limits.newcomers_share * most))
        if owner.newcomer and self._of_newcomers > strangers:
            raise _no_room("new accounts together have")


def _no_room(who: str) -> InternalError:
    return InternalError("STO-E110", f"{who} used up the room for result files")

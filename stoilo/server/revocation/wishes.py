"""Wishes to withdraw something, and the newest file of revocations, as files.

    DIR/revocations/wanted/<digest>.json   one wish each, removed when it is in force
    DIR/revocations/current                what workunits carry

A wish is durable before the command that made it returns, and a server that does not run
takes it up at its next start before it issues anything. Trust: the directory is the
operator's own; files are bounded and checked all the same.
"""

from __future__ import annotations

import fcntl
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError, UsageError, WaitError
from stoilo.core.files import write_durably
from stoilo.core.signatures import parse_envelope
from stoilo.core.statement import (
    MAX_DIGESTS,
    MAX_EPOCHS,
    MAX_FLAVORS,
    RevocationStatement,
    parse_revocation,
    render_revocation,
    split_revocations,
)
from stoilo.executor.verifier.targets import RevocationFile
from stoilo.server.data_directory import keys_of
from stoilo.signer.development.changes import (
    offline_list,
)

if TYPE_CHECKING:
    from pathlib import Path

FOLDER: Final = "revocations"
MAX_WISHES: Final = 1024
_CURRENT: Final = "current"
_BYTES: Final = 64 * 1024
_ZEROS: Final = "0" * 64
_EMPTY: Final = RevocationStatement(
    origin="-",
    time=1,
    epoch=1,
    issuer="online",
    sequence=1,
    base=1,
    offline=_ZEROS,
    epochs=(),
    min_epoch=1,
    digests=(),
    flavors=(),
)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What waits: the files, and all of them as one statement (None: nothing)."""

    files: tuple[Path, ...]
    statement: RevocationStatement | None


def wish(
    *,
    epochs: tuple[int, ...] = (),
    digests: tuple[str, ...] = (),
    flavors: tuple[str, ...] = (),
    min_epoch: int = 1,
) -> RevocationStatement:
    """Return a wish in a statement's form: only its lists count.

    Raises ``STO-U003`` when it names nothing, or something in a wrong form.
    """
    made = msgspec.structs.replace(
        _EMPTY,
        epochs=tuple(sorted(set(epochs))),
        digests=tuple(sorted(set(digests))),
        flavors=tuple(sorted(set(flavors))),
        min_epoch=min_epoch,
    )
    if _EMPTY.covers(made):
        raise UsageError("STO-U003", "nothing to withdraw was named")
    try:
        render_revocation(made)
    except TrustError as error:
        raise UsageError("STO-U003", f"this cannot be withdrawn: {error}") from error
    return made


def merge_wishes(
    kept: RevocationStatement | None, wishes: RevocationStatement | None
) -> RevocationStatement:
    """Return everything that either withdraws, sorted.

    Raises ``STO-L164`` when that is more than a statement holds.
    """
    first, second = kept or _EMPTY, wishes or _EMPTY
    merged = msgspec.structs.replace(
        _EMPTY,
        epochs=tuple(sorted({*first.epochs, *second.epochs})),
        digests=tuple(sorted({*first.digests, *second.digests})),
        flavors=tuple(sorted({*first.flavors, *second.flavors})),
        min_epoch=max(first.min_epoch, second.min_epoch),
    )
    sizes = (
        (merged.epochs, MAX_EPOCHS),
        (merged.digests, MAX_DIGESTS),
        (merged.flavors, MAX_FLAVORS),
    )
    if any(len(items) > most for items, most in sizes):
        raise UsageError(
            "STO-L164",
            "a revocation statement cannot hold so much",
            hint="move it into the offline list: --offline --settle",
        )
    return merged


class Withdrawals:
    """The directory; commands add wishes, the server reads and removes them."""

    def __init__(self, directory: Path) -> None:
        """Make `directory` (0700) if needed."""
        self._wanted = directory / "wanted"
        self._current = directory / _CURRENT
        self._wanted.mkdir(mode=0o700, parents=True, exist_ok=True)

    def add(self, made: RevocationStatement) -> Path:
        """Store a wish durably; returns its file. The same wish is stored once.

        Raises ``STO-L164`` when too many wait.
        """
        data = render_revocation(made)
        path = self._wanted / f"{content_digest(data)}.json"
        # Wishes are merged at each upkeep: a folder full of them would slow the server.
        if len(self._files()) >= MAX_WISHES:
            raise UsageError("STO-L164", f"{MAX_WISHES} wishes wait already")
        write_durably(path, data, mode=0o600)
        return path

    def waiting(self) -> bool:
        """Whether any wish waits."""
        return bool(self._files())

    def wanted(self) -> Wishes:
        """Return what waits; a file that is no wish is refused (``STO-A071``)."""
        files, merged = [], None
        for path in self._files():
            try:
                with path.open("rb") as file:
                    made = parse_revocation(file.read(_BYTES + 1))
            except FileNotFoundError:
                continue
            files.append(path)
            merged = merge_wishes(merged, made)
        return Wishes(tuple(files), merged)

    def drop(self, wishes: Wishes) -> None:
        """Remove wishes that are in force."""
        for path in wishes.files:
            path.unlink(missing_ok=True)

    def read_file(self, most: int) -> bytes:
        """Return the newest file of revocations, b"" when there is none."""
        try:
            with self._current.open("rb") as file:
                data = file.read(most + 1)
        except FileNotFoundError:
            return b""
        return data if len(data) <= most else b""

    def write_file(self, data: bytes) -> None:
        """Replace the newest file of revocations, durably."""
        write_durably(self._current, data, mode=0o600)

    def _files(self) -> list[Path]:
        """Return the wishes' files; one that is being written has another name."""
        return sorted(
            path
            for path in self._wanted.iterdir()
            if path.suffix == ".json" and not path.name.startswith(".")
        )


POLL_S: Final = 0.02
MOST_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class InForce:
    """What a project has withdrawn: offline, online (None before the first), wishes."""

    offline: RevocationFile
    online: RevocationStatement | None
    waiting: RevocationStatement | None


def revocations_in_force(data: Path) -> InForce:
    """Return what the data directory says; nothing of it is verified.

    Raises ``STO-U004`` not the data directory of a server.
    """
    keys = keys_of(data)
    withdrawals = Withdrawals(data / FOLDER)
    stored = withdrawals.read_file(MOST_BYTES)
    online = None
    if stored:
        envelope, _ = split_revocations(stored)
        online = parse_revocation(parse_envelope(envelope).payload)
    return InForce(offline_list(keys), online, withdrawals.wanted().statement)


def withdraw(data: Path, made: RevocationStatement) -> Path:
    """Store a wish that the server takes up at once, or at its next start.

    Raises ``STO-U004``, ``STO-L164`` more than a statement holds.
    """
    now = revocations_in_force(data)
    kept = now.online
    if kept is not None and kept.sequence <= now.offline.settled:
        kept = None
    merge_wishes(merge_wishes(kept, now.waiting), made)
    return Withdrawals(data / FOLDER).add(made)


def wait_in_force(
    data: Path, wanted: Path, made: RevocationStatement, timeout_s: float
) -> RevocationStatement:
    """Return the statement by which a running server has put a wish into force.

    Raises ``STO-L167``; the wish stays.
    """
    end = time.monotonic() + timeout_s
    while True:
        online = revocations_in_force(data).online
        if online is not None and online.covers(made) and not wanted.exists():
            return online
        if time.monotonic() >= end:
            raise WaitError(
                "STO-L167",
                f"the server has not put it into force within {timeout_s:g} s",
                hint="its messages say why; the wish is stored",
            )
        time.sleep(POLL_S)


def is_running(data: Path) -> bool:
    """Whether a server holds the data directory."""
    try:
        with (data / "lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False

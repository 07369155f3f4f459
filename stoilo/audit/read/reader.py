"""Verify a whole log as an auditor would: trust a key, believe nothing else.

The checkpoint's signatures are checked under a policy, every entry is read, the tree is
built again from the entries alone, and each tile and the signed root must follow. Below
a data directory the databases must tell the same history too. Nothing is written, and a
running server may go on meanwhile: the checkpoint is read first and tiles never change.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from stoilo.audit.format.merkle import EMPTY_ROOT
from stoilo.audit.format.policy import LogPolicy, SignedCheckpoint, open_checkpoint
from stoilo.audit.format.tiles import TILE_WIDTH, Tile
from stoilo.audit.log.startup import TileScrub
from stoilo.audit.read.fsck import check_log
from stoilo.audit.read.source import (
    DirectorySource,
    LogSource,
    find_policy,
    open_source,
    read_entries,
)
from stoilo.core.errors import TrustError, UsageError

_FIRST_CHECKPOINT_S = 2.0


@dataclass(frozen=True, slots=True)
class LogReport:
    """A log that verified."""

    origin: str
    size: int  # leaves under the checkpoint
    root: str  # the tree's root, hex
    tiles_checked: int  # tiles and bundles compared
    # True when the key came from the log itself: it then only agrees with itself, and
    # somebody who replaced all of it would not be noticed
    own_policy: bool
    # newest witness time, POSIX seconds, None without witnesses
    checkpoint_time: int | None
    witnesses: tuple[str, ...]  # policy names of those who cosigned, sorted
    # acknowledged leaves not yet published; None without databases
    unpublished: int | None


def verify_log(
    location: str | Path,  # where it is
    # whose signatures count; None takes the log's own copy and says so
    policy: LogPolicy | None = None,
) -> LogReport:
    """Verify the log at a path (log or data directory) or URL.

    Raises:
        UsageError: ``STO-L001`` not a log, ``STO-L005`` no policy.
        UnreachableError: ``STO-L002``.
        TrustError: what does not hold; of a log on this disk, the first fault and where.
    """
    source = open_source(location)
    note = _fetch_checkpoint(source)
    if isinstance(source, DirectorySource):
        return _verify_directory(source, Path(location), note, policy)
    if note is None:
        raise UsageError("STO-L001", "no checkpoint is published here")
    signed = open_checkpoint(note, policy or find_policy(source))
    return _report(signed, _check_entries(source, signed), own=policy is None)


def _verify_directory(
    source: DirectorySource, path: Path, note: bytes | None, policy: LogPolicy | None
) -> LogReport:
    """Verify a log whose own files can be looked at, so that a fault has a place."""
    if note is not None and policy is None:
        find_policy(source)  # without one nothing could be said about a signature
    report, signed, tiles = check_log(path, policy)
    if (fault := report.first_fault) is not None:
        place = f", {fault.place}" if fault.place else ""
        text = f"{fault.file}{place}: {fault.message}"
        raise TrustError(fault.code, text, hint=fault.remedy)
    if signed is not None:
        unpublished = None
        if report.acknowledged is not None:
            unpublished = max(report.acknowledged - report.published, 0)
        return _report(signed, tiles, own=policy is None, unpublished=unpublished)
    return LogReport(
        origin=report.origin,
        size=0,
        root=EMPTY_ROOT.hex(),
        tiles_checked=0,
        own_policy=policy is None,
        checkpoint_time=None,
        witnesses=(),
        unpublished=report.acknowledged or 0,
    )


def _report(
    signed: SignedCheckpoint, tiles: int, *, own: bool, unpublished: int | None = None
) -> LogReport:
    return LogReport(
        origin=signed.checkpoint.origin,
        size=signed.checkpoint.size,
        root=signed.checkpoint.root.hex(),
        tiles_checked=tiles,
        own_policy=own,
        checkpoint_time=signed.time,
        witnesses=tuple(sorted(signed.witnesses)),
        unpublished=unpublished,
    )


def _fetch_checkpoint(source: LogSource) -> bytes | None:
    """Return the checkpoint, if any; a server that is just beginning gets a moment."""
    note = source.checkpoint()
    deadline = time.monotonic() + _FIRST_CHECKPOINT_S
    # Tiles are written before the checkpoint over them is signed.
    while note is None and next(iter(source.stored()), None) is not None:
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
        note = source.checkpoint()
    return note


def _check_entries(source: LogSource, signed: SignedCheckpoint) -> int:
    """Build the tree again from its entries; return how many tiles were compared."""
    size = signed.checkpoint.size
    cache: dict[Tile, bytes | None] = {}

    def read(tile: Tile) -> bytes | None:
        if tile not in cache:
            cache.clear()
            cache[tile] = source.tile(tile)
        return cache[tile]

    scrub = TileScrub(read, size, source.partial_widths)
    for number in range(-(-size // TILE_WIDTH)):
        scrub.extend(read_entries(read, number, size))
    scrub.finish()
    if scrub.builder.root() != signed.checkpoint.root:
        raise TrustError(
            "STO-L033", "the tree built from the entries has another root than signed"
        )
    return scrub.checked

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

from stoilo.audit.format.checkpoint import Checkpoint
from stoilo.audit.format.merkle import EMPTY_ROOT
from stoilo.audit.format.policy import (
    LogPolicy,
    SignedCheckpoint,
    open_checkpoint,
    parse_policy,
)
from stoilo.audit.format.tiles import (
    ENTRIES,
    TILE_WIDTH,
    Tile,
    decode_bundle,
    render_tile_path,
    tile_at,
)
from stoilo.audit.log.head import HeadState
from stoilo.audit.log.scrub import TileScrub
from stoilo.audit.log.startup import check_records
from stoilo.audit.log.store import DiskRecords
from stoilo.audit.read.fsck import find_fault, find_support_fault
from stoilo.audit.read.source import DirectorySource, LogSource, open_source
from stoilo.core.errors import TrustError, UnreachableError, UsageError

__all__ = ["LogReport", "find_policy", "verify_log", "verify_source"]

_FIRST_CHECKPOINT_S = 2.0
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class LogReport:
    """A log that verified.

    Attributes:
        origin: the log's name.
        size: leaves under the checkpoint.
        root: the tree's root, hex.
        tiles_checked: tiles and bundles compared.
        own_policy: True when the key came from the log itself: it then only agrees with
            itself, and somebody who replaced all of it would not be noticed.
        checkpoint_time: newest witness time, POSIX seconds, None without witnesses.
        witnesses: policy names of those who cosigned, sorted.
        unpublished: acknowledged leaves not yet published; None without databases.
    """

    origin: str
    size: int
    root: str
    tiles_checked: int
    own_policy: bool
    checkpoint_time: int | None
    witnesses: tuple[str, ...]
    unpublished: int | None


def verify_log(location: str | Path, policy: LogPolicy | None = None) -> LogReport:
    """Verify the log at a path (log or data directory) or URL.

    Args:
        location: where it is.
        policy: whose signatures count; None takes the log's own copy and says so.

    Raises:
        UsageError: ``STO-L001`` not a log, ``STO-L005`` no policy.
        UnreachableError: ``STO-L002``.
        TrustError: what does not hold.
    """
    source = open_source(location)
    try:
        report = verify_source(source, policy)
    except TrustError as error:
        fault = find_fault(location, policy) if _is_here(source) else None
        if fault is None:
            raise
        text = f"{error.message}; the first fault is in {fault}"
        raise TrustError(error.code, text, hint=fault.remedy or error.hint) from error
    fault = find_support_fault(location, policy) if _is_here(source) else None
    if fault is not None:
        text = f"{fault.file}: {fault.place or 'as a whole'}: {fault.message}"
        raise TrustError(fault.code, text, hint=fault.remedy)
    return report


def _is_here(source: LogSource) -> bool:
    """Tell whether the log's own files can be looked at."""
    return isinstance(source, DirectorySource)


def verify_source(source: LogSource, policy: LogPolicy | None = None) -> LogReport:
    """Verify an opened source; see `verify_log`."""
    known = _remembered(source)
    note = _fetch_checkpoint(source, known)
    if note is None:
        return _verify_unpublished(source, known, policy)
    trusted = policy or find_policy(source)
    signed = open_checkpoint(note, trusted)
    if known is not None and known.published is not None:
        _check_not_older(signed, known.published, trusted)
    checked = _check_entries(source, signed)
    unpublished = None
    if source.paths is not None:
        unpublished = _check_databases(source, signed.checkpoint)
    return LogReport(
        origin=signed.checkpoint.origin,
        size=signed.checkpoint.size,
        root=signed.checkpoint.root.hex(),
        tiles_checked=checked,
        own_policy=policy is None,
        checkpoint_time=signed.time,
        witnesses=tuple(sorted(signed.witnesses)),
        unpublished=unpublished,
    )


def find_policy(source: LogSource) -> LogPolicy:
    """Return the log's own copy of its policy; raises ``STO-L005`` when it has none."""
    text = source.policy()
    if text is None:
        raise UsageError(
            "STO-L005",
            "no policy says whose signature to expect",
            hint="pass --policy with a policy file or a log's verifier key",
        )
    return parse_policy(text)


def _remembered(source: LogSource) -> HeadState | None:
    """Return what the head database remembers, read before the checkpoint."""
    if source.paths is None:
        return None
    records = DiskRecords(source.paths)
    try:
        return records.load_head()
    finally:
        records.close()


def _verify_unpublished(
    source: LogSource, known: HeadState | None, policy: LogPolicy | None
) -> LogReport:
    """Return the report of a data directory whose log has no checkpoint yet."""
    unpublished = _check_databases(source, None)
    return LogReport(
        origin=known.origin if known is not None else "",
        size=0,
        root=EMPTY_ROOT.hex(),
        tiles_checked=0,
        own_policy=policy is None,
        checkpoint_time=None,
        witnesses=(),
        unpublished=unpublished,
    )


def _fetch_checkpoint(source: LogSource, known: HeadState | None) -> bytes | None:
    """Return the checkpoint; a server that is just beginning gets a moment.

    None means that the databases of a data directory know of no checkpoint either.
    """
    note = source.checkpoint()
    if note is not None:
        return note
    if known is not None and known.published is not None:
        raise TrustError("STO-L034", "a checkpoint was published here, and it is gone")
    began = next(iter(source.stored()), None) is not None or (
        known is not None and known.head.size > 0
    )
    deadline = time.monotonic() + _FIRST_CHECKPOINT_S
    while began and note is None and time.monotonic() < deadline:
        time.sleep(0.05)
        note = source.checkpoint()
    if note is not None:
        return note
    if known is not None:
        return None
    if began:
        raise TrustError("STO-L034", "there are tiles here, but no checkpoint")
    raise UsageError("STO-L001", "no checkpoint is published here")


def _check_not_older(
    signed: SignedCheckpoint, remembered: bytes, policy: LogPolicy
) -> None:
    """Refuse a published checkpoint older than the one the head database knows."""
    known = open_checkpoint(remembered, policy).checkpoint
    if signed.checkpoint.size < known.size:
        raise TrustError(
            "STO-L045",
            f"a checkpoint of {known.size} leaves was published, but the one shown "
            f"covers {signed.checkpoint.size}",
        )


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
    for index in range(-(-size // TILE_WIDTH)):
        tile = tile_at(ENTRIES, index, size)
        data = read(tile)
        if data is None:
            data = read(tile.full)
        if data is None:
            raise TrustError("STO-L031", f"{render_tile_path(tile)} is missing")
        scrub.extend(decode_bundle(data, tile.width))
    scrub.finish()
    if scrub.builder.root() != signed.checkpoint.root:
        raise TrustError(
            "STO-L033", "the tree built from the entries has another root than signed"
        )
    return scrub.checked


def _check_databases(source: LogSource, published: Checkpoint | None) -> int:
    """Compare the data directory's databases; return the unpublished leaves."""
    assert source.paths is not None  # noqa: S101 - the caller looked
    for attempt in range(_ATTEMPTS):
        records = DiskRecords(source.paths)
        try:
            return check_records(records, published)
        except UnreachableError:
            if attempt == _ATTEMPTS - 1:  # a server that stops may be moving its files
                raise
            time.sleep(0.2)
        finally:
            records.close()
    raise AssertionError

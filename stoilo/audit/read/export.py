"""Take a log along: a bundle that verifies offline, as a directory.

    checkpoint, policy.txt, tile/…      the log, in the layout of tlog-tiles
    records/tile/<n>, records/<digest>  what its leaves name
    source/<digest>                     chosen published sources

It is a log directory: `stoilo audit verify`, `show`, `search` and `prove` read it, and a
web server that serves it serves a log. Everything is checked on the way,
and the finished copy is verified once more before it gets its name.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stoilo.audit.format.facts import Record, WorkunitRecord
from stoilo.audit.format.policy import LogPolicy, render_policy
from stoilo.audit.format.proof import Leaf, LeafKind, parse_leaf
from stoilo.audit.format.records import check_record
from stoilo.audit.format.tiles import TILE_WIDTH, Tile, render_tile_path
from stoilo.audit.log.side import render_records
from stoilo.audit.read.reader import LogView, open_log, verify_log
from stoilo.audit.read.source import find_policy
from stoilo.core.errors import TrustError, UsageError

_UNRECORDED = LeafKind.ADMISSION  # another leaf's record explains it


@dataclass(slots=True)
class ExportReport:
    """What a bundle holds."""

    origin: str
    size: int  # leaves
    root: str  # the tree's root, hex
    records: int = 0  # records written
    missing: int = 0  # leaves whose record was not there
    sources: int = 0  # published sources written


def export_log(
    location: str | Path,  # where the log is: path or URL; hostile
    target: Path,  # a new directory
    # whose signatures count; None takes the log's own copy
    policy: LogPolicy | None = None,
    *,
    # digests of the published sources to take along; None for all
    sources: frozenset[str] | None = frozenset(),
) -> ExportReport:
    """Write the log at `location` to `target` and verify the copy.

    Raises:
        UsageError: ``STO-U004`` `target` exists or cannot be written; see `open_log`.
        TrustError: what does not hold; then nothing gets the name `target`.
    """
    if target.exists():
        raise UsageError("STO-U004", f"{target} exists already")
    log = open_log(location, policy)
    head = log.signed.checkpoint
    report = ExportReport(head.origin, head.size, head.root.hex())
    draft = target.with_name(f".{target.name}.part")
    try:
        _write_folder(draft, _collect(log, policy, sources, report))
        verify_log(draft, policy)
        draft.rename(target)
    except OSError as error:
        raise UsageError(
            "STO-U004", f"{target} cannot be written: {error.strerror}"
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return report


def _write_folder(path: Path, files: Iterator[tuple[str, bytes]]) -> None:
    path.mkdir()
    for name, data in files:
        place = path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)


def _collect(
    log: LogView,
    policy: LogPolicy | None,
    sources: frozenset[str] | None,
    report: ExportReport,
) -> Iterator[tuple[str, bytes]]:
    """Yield the bundle's files, one at a time; tiles as the entries make them."""
    yield "checkpoint", log.note
    yield "policy.txt", render_policy(policy or find_policy(log.source))
    tiles: dict[Tile, bytes] = {}
    written: set[str] = set()

    def take(tile: Tile, data: bytes) -> None:
        log.compare(tile, data)
        tiles[tile] = data

    for start, leaves in log.bundles(take):
        number, texts = start // TILE_WIDTH, list[bytes | None]()
        found = log.source.records_of(number, leaves)
        for data, text in zip(leaves, found, strict=True):
            leaf, record = _read(data, text)
            texts.append(None if record is None else text)
            if leaf is None or record is None or text is None:
                report.missing += leaf is not None and leaf.kind is not _UNRECORDED
                continue
            yield f"records/{leaf.digest}", text
            yield from _source(log, record, sources, written)
        report.records += len(texts) - texts.count(None)
        yield f"records/tile/{number}", render_records(texts)
        yield from _rendered(tiles)
    yield from _rendered(tiles)
    report.sources = len(written)


def _rendered(tiles: dict[Tile, bytes]) -> Iterator[tuple[str, bytes]]:
    yield from ((render_tile_path(tile), data) for tile, data in tiles.items())
    tiles.clear()


def _read(data: bytes, text: bytes | None) -> tuple[Leaf | None, Record | None]:
    """Return a leaf and its record, checked; None for what is none or not there."""
    try:
        leaf = parse_leaf(data)
    except TrustError:
        return None, None
    return leaf, None if text is None else check_record(leaf, text)


def _source(
    log: LogView, record: Record, wanted: frozenset[str] | None, written: set[str]
) -> Iterator[tuple[str, bytes]]:
    """Yield the source that a workunit's record publishes, if it was chosen."""
    if not isinstance(record, WorkunitRecord) or not record.public_source:
        return
    if record.source in written or (wanted is not None and record.source not in wanted):
        return
    data = log.source.published_source(record.source)
    if data is not None:
        written.add(record.source)
        yield f"source/{record.source}", data

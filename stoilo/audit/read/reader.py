"""Read a log as an outsider would: trust a key, believe nothing else.

A checkpoint is fetched once and verified under a policy; every entry read afterwards is
proven to lie under it, and whoever reads all of them builds the signed tree again.
Nothing is written, and a running server may go on meanwhile: tiles never change.
`check_evidence` does the same offline, with a ``.tlog-proof`` file alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from stoilo.audit.format.facts import Record, WorkunitRecord
from stoilo.audit.format.merkle import check_inclusion, inclusion_proof, leaf_hash
from stoilo.audit.format.policy import LogPolicy, SignedCheckpoint, open_checkpoint
from stoilo.audit.format.proof import (
    Leaf,
    LeafKind,
    Proof,
    parse_leaf,
    parse_proof,
    render_proof,
)
from stoilo.audit.format.records import check_record
from stoilo.audit.format.tiles import (
    TILE_WIDTH,
    Tile,
    TileBuilder,
    TileNodes,
    render_tile_path,
)
from stoilo.audit.log.fsck import LogReport, fsck_log
from stoilo.audit.read.source import (
    DirectorySource,
    LogSource,
    find_policy,
    open_source,
    read_entries,
)
from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError, UsageError, WaitError


@dataclass(frozen=True, slots=True)
class Entry:
    """One leaf, proven to lie where it says."""

    index: int  # place, from 0
    data: bytes  # the leaf's bytes
    # what they say; None when they are no leaf of this project's format
    leaf: Leaf | None
    signed: SignedCheckpoint  # that it lies under
    # the record that the leaf names, checked; None when it names none or the record is
    # not here. An admission names none: `explain_admission` finds what explains it.
    record: Record | None = None
    record_index: int | None = None  # where the record's own leaf lies, if elsewhere
    source: bytes | None = None  # the published source that the record names, hostile
    # ``.tlog-proof`` text, with the leaf in its ``extra``; empty where one was checked
    proof: bytes = b""


class LogView:
    """One log under one verified checkpoint; use `open_log`."""

    def __init__(
        self,
        source: LogSource,  # where it is read from, hostile
        note: bytes,  # the signed checkpoint, verbatim
        signed: SignedCheckpoint,  # what it says, verified
        own_policy: bool,  # True when the policy came from the log itself
    ) -> None:
        self.source = source
        self.note = note
        self.signed = signed
        self.own_policy = own_policy
        self._nodes = TileNodes(source.tile)
        self._tile = lru_cache(maxsize=2)(source.tile)  # a bundle is wanted twice

    @property
    def size(self) -> int:
        """Leaves under the checkpoint."""
        return self.signed.checkpoint.size

    def entry(self, index: int) -> Entry:
        """Return the leaf at `index` with its record and proof.

        Raises:
            WaitError: ``STO-L056`` it is not under the checkpoint.
            TrustError: the log does not prove it, or the record is not the leaf's.
        """
        data, proof = self.prove(index)
        leaf = _parse_leaf(data)
        record = self._record(index, leaf)
        return Entry(index, data, leaf, self.signed, record, proof=proof)

    def prove(self, index: int) -> tuple[bytes, bytes]:
        """Return the leaf at `index` and its proof's text; see `entry`."""
        if not 0 <= index < self.size:
            raise WaitError(
                "STO-L056",
                f"leaf {index} is not under the published checkpoint of {self.size}",
            )
        path = inclusion_proof(
            index, self.size, lambda level, at: self._nodes.node(level, at, self.size)
        )
        data = self.bundle(index // TILE_WIDTH)[index % TILE_WIDTH]
        check_inclusion(leaf_hash(data), index, path, self.signed.checkpoint)
        return data, render_proof(Proof(index, tuple(path), self.note, data))

    def bundle(self, number: int) -> list[bytes]:
        """Return the leaves of one bundle as listed; hostile until proven.

        Raises:
            TrustError: ``STO-L010`` or ``STO-L032`` when the bundle is bad or missing.
        """
        return read_entries(self._tile, number, self.size)

    def check(self) -> int:
        """Compare every tile with the entries; return how many there are; see `bundles`."""
        tiles: list[Tile] = []

        def compare(tile: Tile, data: bytes) -> None:
            self.compare(tile, data)
            tiles.append(tile)

        for _ in self.bundles(compare):
            pass
        return len(tiles)

    def compare(self, tile: Tile, data: bytes) -> None:
        """Compare a tile as it is shown with what the entries make of it.

        Raises:
            TrustError: ``STO-L032`` it is missing, it holds something else.
        """
        present = self._tile(tile)
        if present is None:  # a partial tile goes once the full one is there
            present = (self._tile(tile.full) or b"")[: len(data)]
        if not present:
            raise TrustError("STO-L032", f"{render_tile_path(tile)} is missing")
        if present != data:
            text = f"{render_tile_path(tile)} does not hold what the log says"
            raise TrustError("STO-L032", text)

    def bundles(
        self,
        # gets each tile as the entries make it
        take: Callable[[Tile, bytes], None] = lambda _tile, _data: None,
    ) -> Iterator[tuple[int, list[bytes]]]:
        """Yield every bundle with the index of its first leaf.

        At the end the tree was built again from them: nothing is missing or made up.

        Raises:
            TrustError: ``STO-L010``, ``STO-L032``, at the end ``STO-L032``.
        """
        builder = TileBuilder()
        for number in range(-(-self.size // TILE_WIDTH)):
            leaves = self.bundle(number)
            for tile, data in builder.extend(leaves):
                take(tile, data)
            yield number * TILE_WIDTH, leaves
        for tile, data in builder.partial():
            take(tile, data)
        if builder.root() != self.signed.checkpoint.root:
            text = "the tree built from the entries has another root than signed"
            raise TrustError("STO-L032", text)

    def _record(self, index: int, leaf: Leaf | None) -> Record | None:
        if leaf is None or leaf.kind is LeafKind.ADMISSION:
            return None
        number, place = divmod(index, TILE_WIDTH)
        data = self.source.records_of(number, self.bundle(number))[place]
        return None if data is None else check_record(leaf, data)


def open_log(
    location: str | Path,  # where it is; hostile
    # whose signatures count; None takes the log's own copy
    policy: LogPolicy | None = None,
) -> LogView:
    """Open the log at a path (data directory, log directory, bundle) or URL.

    Raises:
        UsageError: ``STO-L001`` not a log, ``STO-L005`` no policy.
        UnreachableError: ``STO-L002``.
        TrustError: the checkpoint is not one that the policy trusts.
    """
    source = open_source(location)
    note = source.checkpoint()
    if note is None:
        raise UsageError("STO-L001", "no checkpoint is published here")
    signed = open_checkpoint(note, policy or find_policy(source))
    return LogView(source, note, signed, policy is None)


def verify_log(
    location: str | Path,  # where it is
    # whose signatures count; None takes the log's own copy and says so
    policy: LogPolicy | None = None,
) -> LogReport:
    """Verify the whole log at a path (log or data directory) or URL.

    Raises:
        UsageError: ``STO-L001`` not a log, ``STO-L005`` no policy.
        UnreachableError: ``STO-L002``.
        TrustError: what does not hold; of a log on this disk, the first fault and where.
    """
    source = open_source(location)
    if isinstance(source, DirectorySource):
        if policy is None and source.checkpoint() is not None:
            find_policy(source)  # without one nothing could be said about a signature
        report = fsck_log(Path(location), policy)
        report.refuse_faults()
        return report
    log = open_log(location, policy)
    checkpoint = log.signed.checkpoint
    return LogReport(
        origin=checkpoint.origin,
        size=checkpoint.size,
        root=checkpoint.root.hex(),
        tiles_checked=log.check(),
        own_policy=log.own_policy,
        checkpoint_time=log.signed.time,
        witnesses=tuple(sorted(log.signed.witnesses)),
    )


def check_evidence(
    proof: bytes,  # ``.tlog-proof`` text
    policy: LogPolicy,  # whose signatures count
    *,
    leaf: bytes | None = None,  # the leaf's bytes; None takes those in the proof
    record: bytes | None = None,  # bytes that must be the leaf's record
    # bytes that must be the published source which the record names
    source: bytes | None = None,
) -> Entry:
    """Return what a proof shows; everything but `policy` is hostile.

    Raises:
        UsageError: ``STO-U003`` there is no leaf, or a source without a record.
        TrustError: ``STO-L010``…``STO-L016`` malformed, or checkpoint not
            trusted, ``STO-L020`` not included, ``STO-L010`` no leaf of this format,
            ``STO-L141`` record or source of another.
    """
    parsed = parse_proof(proof)
    data = parsed.extra if leaf is None else leaf
    if not data and leaf is None:
        raise UsageError("STO-U003", "the proof carries no leaf", hint="pass --leaf")
    signed = open_checkpoint(parsed.checkpoint, policy)
    check_inclusion(leaf_hash(data), parsed.index, parsed.path, signed.checkpoint)
    said = _parse_leaf(data, needed=record is not None)
    known = None
    if record is not None and said is not None:
        known = check_record(said, record)
    if source is not None:
        _check_source(known, source)
    return Entry(parsed.index, data, said, signed, known, source=source)


def _parse_leaf(data: bytes, *, needed: bool = False) -> Leaf | None:
    try:
        return parse_leaf(data)
    except TrustError:
        if needed:
            raise
        return None


def _check_source(record: Record | None, source: bytes) -> None:
    """Refuse a source that is not the one which the record publishes."""
    if record is None:
        raise UsageError(
            "STO-U003", "a source is checked against a record", hint="pass --record"
        )
    if not isinstance(record, WorkunitRecord) or not record.public_source:
        raise TrustError("STO-L141", "this record publishes no source")
    if content_digest(source) != record.source:
        raise TrustError("STO-L141", "the source is not the one that was admitted")

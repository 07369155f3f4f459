"""Check one entry offline: proof, leaf, record and source fit each other. Pure.

This is what `stoilo audit check` does with a ``.tlog-proof`` file. The proof carries the
leaf in its ``extra``, which nothing authenticates by itself: the inclusion proof does.
"""

from __future__ import annotations

from dataclasses import dataclass

from stoilo.audit.format.checkpoint import check_inclusion
from stoilo.audit.format.leaf import Leaf, parse_leaf
from stoilo.audit.format.merkle import leaf_hash
from stoilo.audit.format.policy import LogPolicy, SignedCheckpoint, open_checkpoint
from stoilo.audit.format.proof import parse_proof
from stoilo.audit.format.record import Record, WorkunitRecord, check_record
from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError, UsageError


@dataclass(frozen=True, slots=True)
class Evidence:
    """An entry of a log that was checked.

    Attributes:
        index: place, from 0.
        data: the leaf's bytes.
        leaf: what they say; None when they are not of this project's format.
        signed: the checkpoint it lies under, and who signed.
        record: the record that was compared with the leaf, None without one.
        source: True when a source was compared with the record.
    """

    index: int
    data: bytes
    leaf: Leaf | None
    signed: SignedCheckpoint
    record: Record | None = None
    source: bool = False


def check_evidence(
    proof: bytes,
    policy: LogPolicy,
    *,
    leaf: bytes | None = None,
    record: bytes | None = None,
    source: bytes | None = None,
) -> Evidence:
    """Return what a proof shows; everything but `policy` is hostile.

    Args:
        proof: ``.tlog-proof`` text.
        policy: whose signatures count.
        leaf: the leaf's bytes; None takes those in the proof.
        record: bytes that must be the leaf's record.
        source: bytes that must be the published source which the record names.

    Raises:
        UsageError: ``STO-L061`` there is no leaf, or a source without a record.
        TrustError: ``STO-L022`` malformed, ``STO-L010``…``STO-L016`` checkpoint not
            trusted, ``STO-L020`` not included, ``STO-L024`` no leaf of this format,
            ``STO-L062``, ``STO-L140`` and ``STO-L141`` record or source of another.
    """
    parsed = parse_proof(proof)
    data = parsed.extra if leaf is None else leaf
    if not data and leaf is None:
        raise UsageError("STO-L061", "the proof carries no leaf", hint="pass --leaf")
    signed = open_checkpoint(parsed.checkpoint, policy)
    check_inclusion(leaf_hash(data), parsed.index, parsed.path, signed.checkpoint)
    said = _parse(data, needed=record is not None)
    known = None
    if record is not None and said is not None:
        known = check_record(said, record)
    if source is not None:
        _check_source(known, source)
    return Evidence(parsed.index, data, said, signed, known, source is not None)


def _parse(data: bytes, *, needed: bool) -> Leaf | None:
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
            "STO-L061", "a source is checked against a record", hint="pass --record"
        )
    if not isinstance(record, WorkunitRecord) or not record.public_source:
        raise TrustError("STO-L062", "this record publishes no source")
    if content_digest(source) != record.source:
        raise TrustError("STO-L062", "the source is not the one that was admitted")

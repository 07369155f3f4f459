"""What the audit commands show: one set of facts, as JSON and as lines for people."""

from __future__ import annotations

import base64
import datetime as dt
import json
from dataclasses import asdict, dataclass

import msgspec

from stoilo.audit.format.facts import LeafKind, Record, WorkunitRecord
from stoilo.audit.format.leaf import Leaf
from stoilo.audit.format.merkle import leaf_hash
from stoilo.audit.format.policy import SignedCheckpoint
from stoilo.audit.read.search import Found, SearchResult, explain_admission
from stoilo.audit.read.view import Entry, Evidence, LogView
from stoilo.core.errors import StoiloError
from stoilo.core.plaintext import show_plainly
from stoilo.core.strict_json import Json


@dataclass(frozen=True, slots=True)
class ShownEntry:
    """One proven entry; the names are those of the JSON."""

    index: int  # place in the log
    kind: str | None  # of the leaf; None for leaves of another format
    digest: str | None  # what the leaf names
    epoch: str | None  # gate epoch
    time: int | None  # POSIX seconds
    leaf: str  # the leaf's bytes, base64
    leaf_hash: str  # RFC 6962, hex
    origin: str
    size: int  # leaves under the checkpoint that proves it
    root: str  # the checkpoint's root, hex
    cosigned: tuple[str, ...]  # policy names of the witnesses
    # newest cosignature's time, POSIX seconds, None without witnesses
    cosigned_at: int | None
    retired_policy: bool  # True when only an older policy accepts the checkpoint
    record: Json  # the record's fields, None without one
    record_index: int | None = None  # place of the record that explains an admission
    source: str | None = None  # published source, if it was asked for and is there
    proof: str = ""  # ``.tlog-proof`` text, empty where a proof was what was checked


def show_entry(log: LogView, entry: Entry, *, with_source: bool) -> ShownEntry:
    """Return what is shown of an entry; an admission's record is looked up.

    Raises:
        TrustError: a record or source is not what it should be.
    """
    record, place = entry.record, None
    if entry.leaf is not None and entry.leaf.kind is LeafKind.ADMISSION:
        found = explain_admission(log, entry.index, entry.data)
        if found is not None:
            place, record = found
    source = None
    if with_source and isinstance(record, WorkunitRecord) and record.public_source:
        source = log.source.published_source(record.source)
    text = None if source is None else source.decode(errors="replace")
    return _shown(
        entry.index,
        entry.data,
        entry.leaf,
        log.signed,
        record,
        place=place,
        source=text,
        proof=entry.proof.decode(),
    )


def show_evidence(found: Evidence) -> ShownEntry:
    """Return what is shown of a proof that was checked."""
    return _shown(found.index, found.data, found.leaf, found.signed, found.record)


def _shown(
    index: int,
    data: bytes,
    leaf: Leaf | None,
    signed: SignedCheckpoint,
    record: Record | None,
    *,
    place: int | None = None,
    source: str | None = None,
    proof: str = "",
) -> ShownEntry:
    return ShownEntry(
        index=index,
        kind=None if leaf is None else leaf.kind.value,
        digest=None if leaf is None else leaf.digest,
        epoch=None if leaf is None else leaf.epoch,
        time=None if leaf is None else leaf.time,
        leaf=base64.b64encode(data).decode(),
        leaf_hash=leaf_hash(data).hex(),
        origin=signed.checkpoint.origin,
        size=signed.checkpoint.size,
        root=signed.checkpoint.root.hex(),
        cosigned=tuple(sorted(signed.witnesses)),
        cosigned_at=signed.time,
        retired_policy=signed.retired,
        record=_fields(record),
        record_index=place,
        source=source,
        proof=proof,
    )


def _fields(record: Record | None) -> Json:
    fields: Json = None if record is None else msgspec.to_builtins(record)
    return fields


def render_json(entry: ShownEntry) -> str:
    """Return one entry for machines."""
    return json.dumps({"verified": True, **asdict(entry)})


def render_refusal(error: StoiloError) -> str:
    """Return the machine's form of what did not verify."""
    fault = {"code": error.code, "message": error.message, "hint": error.hint}
    return json.dumps({"verified": False, "error": fault})


def render_entries(entries: list[ShownEntry], *, as_json: bool) -> str:
    """Return entries for machines (one object) or for people."""
    if as_json:
        return json.dumps(
            {"verified": True, "entries": [asdict(one) for one in entries]}
        )
    return "\n\n".join("\n".join(_lines(one)) for one in entries)


def _lines(entry: ShownEntry) -> list[str]:
    """Return an entry as `name: value` lines; foreign text is escaped."""
    kind = entry.kind or "a leaf of another format"
    lines = [f"entry {entry.index} of {show_plainly(entry.origin)}: {kind}"]
    if entry.time is not None:
        lines.append(f"  logged for: {_moment(entry.time)}, epoch {entry.epoch}")
        lines.append(f"  digest: {entry.digest}")
    lines.append(f"  proven under: the checkpoint of {entry.size} leaves {entry.root}")
    if entry.cosigned:
        when = "" if entry.cosigned_at is None else f" at {_moment(entry.cosigned_at)}"
        lines.append(
            f"  cosigned by: {', '.join(map(show_plainly, entry.cosigned))}{when}"
        )
    if entry.retired_policy:
        lines.append("  accepted by: an older policy, within its window")
    if entry.record_index is not None:
        lines.append(f"  explained by: entry {entry.record_index}")
    if isinstance(entry.record, dict):
        for name, value in entry.record.items():
            lines.append(f"  {name}: {_value(name, value)}")
    elif entry.kind is not None:
        lines.append("  record: none here")
    if entry.source is not None:
        lines += ["  source:", *_indented(show_plainly(entry.source))]
    return lines


def _indented(text: str) -> list[str]:
    return [f"    {line}" for line in text.split("\n")]


_TIMES = frozenset(
    {"time", "admitted_at", "not_before", "not_after", "checkpoint_time"}
    | {"start", "end", "before", "until"}
)


def _value(name: str, value: Json) -> str:
    if name in _TIMES and isinstance(value, int):
        return _moment(value) if value else "-"
    text = value if isinstance(value, str) else json.dumps(value)
    return show_plainly(text) or "-"


def _moment(seconds: int) -> str:
    """Return a time in UTC; what no calendar holds stays a number."""
    try:
        return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime(
            "%Y-%m-%d %H:%M:%S UTC"
        )
    except (ValueError, OverflowError, OSError):
        return f"{seconds} s"


def render_search(result: SearchResult, *, as_json: bool) -> str:
    """Return what a search found, for machines (one object) or for people."""
    if as_json:
        found = [_row(one) for one in result.found]
        counts = {
            "searched": result.searched,
            "without_record": result.without_record,
            "more": result.more,
        }
        return json.dumps({"verified": True, **counts, "found": found})
    lines = [
        f"{one.index:>9}  {_moment(one.leaf.time)}  {one.leaf.kind:<10}  "
        f"{one.leaf.digest}"
        for one in result.found
    ]
    rest = f", {result.more} more match" if result.more else ""
    lines.append(f"{len(result.found)} of {result.searched} entries{rest}")
    if result.without_record:
        lines.append(f"{result.without_record} entries have no record here")
    return "\n".join(lines)


def _row(found: Found) -> dict[str, Json]:
    return {
        "index": found.index,
        "kind": found.leaf.kind.value,
        "digest": found.leaf.digest,
        "epoch": found.leaf.epoch,
        "time": found.leaf.time,
        "record": _fields(found.record),
    }

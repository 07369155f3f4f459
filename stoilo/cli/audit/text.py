"""What the audit commands show: one set of facts, as JSON and as lines for people."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import msgspec

from stoilo.audit.format.facts import TIME_FIELDS, Record, WorkunitRecord, show_time
from stoilo.audit.format.merkle import leaf_hash
from stoilo.audit.format.misbehaviour import Misbehaviour
from stoilo.audit.format.proof import LeafKind
from stoilo.audit.read.reader import Entry, LogView
from stoilo.audit.read.search import Found, SearchResult, explain_admission
from stoilo.cli.output import say
from stoilo.core.errors import show_plainly
from stoilo.core.signatures import Json


def show_entry(log: LogView, entry: Entry, *, with_source: bool) -> Entry:
    """Return an entry with all that is shown of it; an admission's record is looked up.

    Raises:
        TrustError: a record or source is not what it should be.
    """
    if entry.leaf is not None and entry.leaf.kind is LeafKind.ADMISSION:
        found = explain_admission(log, entry.index, entry.data)
        if found is not None:
            entry = replace(entry, record_index=found[0], record=found[1])
    record = entry.record
    if with_source and isinstance(record, WorkunitRecord) and record.public_source:
        source = log.source.published_source(record.source)
        entry = replace(entry, source=source)
    return entry


def record_of(entry: Entry) -> dict[str, Json]:
    """Return an entry's fields; their names are a contract with scripts."""
    leaf, signed = entry.leaf, entry.signed
    source = None if entry.source is None else entry.source.decode(errors="replace")
    cosigned: list[Json] = [*sorted(signed.witnesses)]
    return {
        "index": entry.index,
        "kind": leaf.kind.value if leaf else None,  # None: a leaf of another format
        "digest": leaf.digest if leaf else None,
        "epoch": leaf.epoch if leaf else None,
        "time": leaf.time if leaf else None,  # POSIX seconds, as cosigned_at
        "leaf": base64.b64encode(entry.data).decode(),
        "leaf_hash": leaf_hash(entry.data).hex(),  # RFC 6962
        "origin": signed.checkpoint.origin,
        "size": signed.checkpoint.size,
        "root": signed.checkpoint.root.hex(),
        "cosigned": cosigned,
        "cosigned_at": signed.time,
        "retired_policy": signed.retired,  # only an older policy accepts the checkpoint
        "record": _fields(entry.record),
        "record_index": entry.record_index,
        "source": source,
        "proof": entry.proof.decode(),
    }


def _fields(record: Record | None) -> Json:
    fields: Json = None if record is None else msgspec.to_builtins(record)
    return fields


def describe_entries(entries: list[Entry]) -> str:
    """Return entries for people."""
    return "\n\n".join("\n".join(_lines(one)) for one in entries)


def _lines(entry: Entry) -> list[str]:
    """Return an entry as `name: value` lines; foreign text is escaped."""
    leaf, signed = entry.leaf, entry.signed
    kind = leaf.kind.value if leaf else "a leaf of another format"
    head = signed.checkpoint
    lines = [f"entry {entry.index} of {show_plainly(head.origin)}: {kind}"]
    if leaf is not None:
        lines.append(f"  logged for: {show_time(leaf.time)}, epoch {leaf.epoch}")
        lines.append(f"  digest: {leaf.digest}")
    lines.append(
        f"  proven under: the checkpoint of {head.size} leaves {head.root.hex()}"
    )
    if signed.witnesses:
        when = "" if signed.time is None else f" at {show_time(signed.time)}"
        names = ", ".join(map(show_plainly, sorted(signed.witnesses)))
        lines.append(f"  cosigned by: {names}{when}")
    if signed.retired:
        lines.append("  accepted by: an older policy, within its window")
    if entry.record_index is not None:
        lines.append(f"  explained by: entry {entry.record_index}")
    if entry.record is not None:
        for name, value in msgspec.to_builtins(entry.record).items():
            lines.append(f"  {name}: {_value(name, value)}")
    elif leaf is not None:
        lines.append("  record: none here")
    if entry.source is not None:
        text = show_plainly(entry.source.decode(errors="replace"))
        lines += ["  source:", *_indented(text)]
    return lines


def _indented(text: str) -> list[str]:
    return [f"    {line}" for line in text.split("\n")]


def _value(name: str, value: Json) -> str:
    if name in TIME_FIELDS and isinstance(value, int):
        return show_time(value) if value else "-"
    text = value if isinstance(value, str) else json.dumps(value)
    return show_plainly(text) or "-"


def say_search(result: SearchResult, *, as_json: bool) -> None:
    """Print what a search found."""
    record = {
        "verified": True,
        "searched": result.searched,
        "without_record": result.without_record,
        "more": result.more,
        "found": [_row(one) for one in result.found],
    }
    lines = [
        f"{one.index:>9}  {show_time(one.leaf.time)}  {one.leaf.kind:<10}  "
        f"{one.leaf.digest}"
        for one in result.found
    ]
    rest = f", {result.more} more match" if result.more else ""
    lines.append(f"{len(result.found)} of {result.searched} entries{rest}")
    if result.without_record:
        lines.append(f"{result.without_record} entries have no record here")
    say(record, "\n".join(lines), as_json=as_json)


def _row(found: Found) -> dict[str, Json]:
    return {
        "index": found.index,
        "kind": found.leaf.kind.value,
        "digest": found.leaf.digest,
        "epoch": found.leaf.epoch,
        "time": found.leaf.time,
        "record": _fields(found.record),
    }


def say_misbehaviour(shown: Misbehaviour, *, as_json: bool) -> None:
    """Print what a proof of misbehaviour shows."""
    first, second = shown.first, shown.second
    witnesses = sorted(shown.witnesses)
    record = {
        "proven": True,
        "origin": first.origin,
        "checkpoints": [
            {"size": one.size, "root": one.root.hex()} for one in (first, second)
        ],
        "root_of_second_at_first": shown.root.hex(),
        "witnesses": witnesses,
    }
    lines = [f"Proven: the log {first.origin} has signed two histories."]
    lines += [
        f"{one.size} leaves with root {one.root.hex()}" for one in (first, second)
    ]
    if first.size != second.size:
        lines.append(f"whose first {first.size} leaves have root {shown.root.hex()}")
    if witnesses:
        lines.append(f"These witnesses cosigned both: {', '.join(map(str, witnesses))}")
    say(record, "\n".join(lines), as_json=as_json)

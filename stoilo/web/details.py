"""The fields of a record as terms and values that a page can lay out. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from stoilo.audit.format.facts import CodeCount, NamedDigest
from stoilo.audit.format.record import Record, WorkunitRecord
from stoilo.core.limits import RunLimits
from stoilo.core.types import Redundancy
from stoilo.web.wording import render_amount, render_bytes, render_seconds, render_time

__all__ = ["Detail", "Shape", "describe_limits", "describe_redundancy", "list_details"]


class Shape(StrEnum):
    """How a value is laid out."""

    TEXT = "text"
    HASH = "hash"
    CODE = "code"
    ENTRY = "entry"
    TASK = "task"


@dataclass(frozen=True, slots=True)
class Detail:
    """One line of a list of facts.

    Attributes:
        term: what it is, for people.
        value: its text; hostile only as far as a record's checked fields are.
        shape: how it is laid out.
    """

    term: str
    value: str
    shape: Shape = Shape.TEXT


_TERMS = {
    "admission": ("Admission", Shape.ENTRY),
    "admission_leaf": ("Hash of the admission's leaf", Shape.HASH),
    "task": ("Task", Shape.TASK),
    "attempt": ("Attempt", Shape.TEXT),
    "submitter": ("Researcher (salted)", Shape.HASH),
    "subject": ("Account concerned (salted)", Shape.HASH),
    "source": ("Source (salted)", Shape.HASH),
    "validator": ("Validator's source (salted)", Shape.HASH),
    "arguments": ("Arguments (salted)", Shape.HASH),
    "blobs": ("Data blobs (salted)", Shape.HASH),
    "level": ("Level", Shape.TEXT),
    "level_digest": ("Version of the level", Shape.HASH),
    "policy_digest": ("Policy that admitted it", Shape.HASH),
    "language_digest": ("Version of the language layer", Shape.HASH),
    "flavor": ("Flavor", Shape.HASH),
    "codes": ("Remarks", Shape.CODE),
    "code": ("Code", Shape.CODE),
    "reviews": ("Review that it stands on (salted)", Shape.HASH),
    "reviewer": ("Reviewer's key", Shape.HASH),
    "review": ("Review (salted)", Shape.HASH),
    "result": ("Canonical result (salted)", Shape.HASH),
    "agreeing": ("Copies that agreed", Shape.TEXT),
    "root": ("Merkle root", Shape.HASH),
    "epoch": ("Epoch of the gate's key", Shape.TEXT),
    "min_epoch": ("Lowest epoch allowed", Shape.TEXT),
    "epochs": ("Withdrawn epochs", Shape.TEXT),
    "digests": ("Withdrawn digests", Shape.HASH),
    "flavors": ("Withdrawn flavors", Shape.HASH),
    "offline": ("Offline list that it stands on", Shape.HASH),
    "key": ("Public key", Shape.HASH),
    "file": ("Release file", Shape.HASH),
    "digest": ("Digest", Shape.HASH),
    "previous": ("Follows", Shape.HASH),
    "archives": ("Archives", Shape.HASH),
    "published": ("Published sources that are gone", Shape.HASH),
    "versions": ("In force", Shape.HASH),
}
_TIMES = frozenset(
    {"admitted_at", "not_after", "not_before", "start", "end", "before", "until"}
    | {"checkpoint_time"}
)
_HIDDEN = frozenset({"origin", "time", "limits", "redundancy", "public_source"})
_OPTIONAL = frozenset({"not_before", "not_after", "until", "checkpoint_time"})


def list_details(record: Record) -> list[Detail]:
    """Return the fields of a record in their order, empty ones left out."""
    found: list[Detail] = []
    for field in record.__struct_fields__:
        value = getattr(record, field)
        if field in _HIDDEN or value in ("", (), -1):
            continue
        if field in _OPTIONAL and value == 0:
            continue
        found += _details(record, field, value)
    return found


def _details(record: Record, field: str, value: object) -> Iterator[Detail]:
    term, shape = _TERMS.get(field, (field.replace("_", " ").capitalize(), Shape.TEXT))
    if (
        field == "source"
        and isinstance(record, WorkunitRecord)
        and record.public_source
    ):
        term = "Source (published)"
    if field in _TIMES:
        yield Detail(term, render_time(int(str(value))))
        return
    for one in value if isinstance(value, tuple) else (value,):
        match one:
            case CodeCount():
                yield Detail(f"{term}: {one.count:,} times", one.code, Shape.CODE)
            case NamedDigest():
                yield Detail(f"{term}: {one.name}", one.digest, Shape.HASH)
            case _:
                yield Detail(term, str(one), shape)


def describe_limits(limits: RunLimits) -> list[Detail]:
    """Return what one run may use."""
    return [
        Detail("Processor time", render_seconds(limits.cpu_s)),
        Detail("Elapsed time", render_seconds(limits.wall_s)),
        Detail("Memory", render_bytes(limits.memory_bytes)),
        Detail("Size of its result", render_bytes(limits.result_bytes)),
        Detail("What it may print", render_bytes(limits.output_bytes)),
        Detail("Threads", str(limits.threads)),
    ]


def describe_redundancy(redundancy: Redundancy) -> list[Detail]:
    """Return how many copies run, and how many must agree."""
    return [
        Detail("Sent out", render_amount(redundancy.target_results, "copy")),
        Detail("Must agree", render_amount(redundancy.min_quorum, "copy")),
        Detail("At most in all", render_amount(redundancy.max_total, "copy")),
        Detail("Time for each", render_seconds(redundancy.delay_bound_s)),
    ]

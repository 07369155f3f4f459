"""The fields of a record as terms and values that a page can lay out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from stoilo.audit.format.facts import (
    TIME_FIELDS,
    CodeCount,
    NamedDigest,
    Record,
    WorkunitRecord,
    show_time,
)
from stoilo.core.codebook import load_codebook
from stoilo.core.errors import UsageError
from stoilo.core.libraries import load_libraries
from stoilo.core.types import Redundancy, RunLimits
from stoilo.policies.levels import load_level
from stoilo.web.language import gettext
from stoilo.web.wording import render_amount, render_bytes, render_seconds


class Shape(StrEnum):
    """How a value is laid out."""

    TEXT = "text"
    HASH = "hash"
    CODE = "code"
    ENTRY = "entry"
    TASK = "task"


@dataclass(frozen=True, slots=True)
class Detail:
    """One line of a list of facts."""

    term: str  # what it is, for people
    value: str  # its text; hostile only as far as a record's checked fields are
    shape: Shape = Shape.TEXT  # how it is laid out


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
    "libraries": ("Versions of its libraries", Shape.HASH),
    "policy_digest": ("Policy that admitted it", Shape.HASH),
    "language_digest": ("Version of the language layer", Shape.HASH),
    "flavor": ("Flavor", Shape.HASH),
    "codes": ("Remarks", Shape.CODE),
    "code": ("Code", Shape.CODE),
    "reviews": ("Review that it stands on (salted)", Shape.HASH),
    "reviewer": ("Reviewer's key", Shape.HASH),
    "review": ("Review (salted)", Shape.HASH),
    "result": ("Canonical result (salted)", Shape.HASH),
    "agreeing": ("Results that agreed", Shape.TEXT),
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
    term = gettext(term)
    if (
        field == "source"
        and isinstance(record, WorkunitRecord)
        and record.public_source
    ):
        term = gettext("Source (published)")
    if field in TIME_FIELDS:
        yield Detail(term, show_time(int(str(value))))
        return
    for one in value if isinstance(value, tuple) else (value,):
        match one:
            case CodeCount():
                yield Detail(f"{term}: {_times(one.count)}", one.code, Shape.CODE)
            case NamedDigest():
                yield Detail(f"{term}: {one.name}", one.digest, Shape.HASH)
            case _:
                yield Detail(term, str(one), shape)


def _times(count: int) -> str:
    return render_amount(count, "time")


def _results(count: int) -> str:
    return render_amount(count, "result")


_MEASURES: dict[str, tuple[str, Callable[[int], str]]] = {
    "cpu_s": ("Processor time", render_seconds),
    "wall_s": ("Elapsed time", render_seconds),
    "memory_bytes": ("Memory", render_bytes),
    "result_bytes": ("Size of its result", render_bytes),
    "output_bytes": ("What it may print", render_bytes),
    "threads": ("Threads", str),
    "target_results": ("Sent out", _results),
    "min_quorum": ("Must agree", _results),
    "max_total": ("At most in all", _results),
    "delay_bound_s": ("Time for each", render_seconds),
}


def list_measures(of: RunLimits | Redundancy) -> list[Detail]:
    """Return what one run may use, or how many results are wanted of a task."""
    return [
        Detail(gettext(term), render(getattr(of, field)))
        for field, (term, render) in _MEASURES.items()
        if hasattr(of, field)
    ]


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that a rule noted without refusing: code and its title."""

    code: str
    title: str


def remarks_of(*codes: str) -> tuple[Remark, ...]:
    """Return codes with their titles; empty ones are left out."""
    book = load_codebook()
    return tuple(
        Remark(
            code,
            book[code].title if code in book else gettext("a code of another version"),
        )
        for code in codes
        if code
    )


@dataclass(frozen=True, slots=True)
class Permission:
    """What a level lets a task do."""

    summary: str  # one sentence; empty when this server holds another version
    modules: tuple[str, ...] = ()  # library modules that it may import, sorted


def describe_permission(record: WorkunitRecord) -> Permission:
    """Return what the level of an attempt permits, as far as it is known here."""
    try:
        level = load_level(record.level)
    except UsageError:
        return Permission("")
    if level.digest != record.level_digest:
        return Permission("")
    known = (one for one in load_libraries() if one.digest in record.libraries)
    modules = {*level.modules, *(name for one in known for name in one.modules)}
    return Permission(level.summary, tuple(sorted(modules)))

"""The fields of a record as terms and values that a page can lay out. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from stoilo.audit.format.facts import CodeCount, NamedDigest, Record, WorkunitRecord
from stoilo.core.codebook import load_codebook
from stoilo.core.errors import UsageError
from stoilo.core.levels import Level
from stoilo.core.limits import RunLimits
from stoilo.core.types import Redundancy
from stoilo.policies.levels import load_level
from stoilo.web.wording import render_amount, render_bytes, render_seconds, render_time


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
    """Return how many results are computed, and how many must agree."""
    return [
        Detail("Sent out", render_amount(redundancy.target_results, "result")),
        Detail("Must agree", render_amount(redundancy.min_quorum, "result")),
        Detail("At most in all", render_amount(redundancy.max_total, "result")),
        Detail("Time for each", render_seconds(redundancy.delay_bound_s)),
    ]


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that a rule noted without refusing: code and its title."""

    code: str
    title: str


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the gate."""

    demand: str  # what it demands, in plain words
    outcome: str  # what it said
    remarks: tuple[Remark, ...] = ()  # what it noted


_PASSED, _NOTED = "passed", "passed, with a remark"
_AREAS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        (
            "The text hides nothing: no invisible or reordering characters, "
            "no names that look like others."
        ),
        (("P010", "P021"),),
    ),
    (
        "It is valid Python, small and simple enough to be judged as a whole.",
        (("P022", "P029"), ("P054", "P055"), ("G001", "G004")),
    ),
    (
        (
            "It has a function that can be called, and no code that runs beside it "
            "as a script."
        ),
        (("P030", "P035"),),
    ),
    (
        "It imports only modules, and of them only names, that its level hands out.",
        (("P040", "P044"), ("P052", "P052"), ("G016", "G019")),
    ),
    (
        "It uses no name, attribute or syntax that leads out of the language layer.",
        (("G010", "G015"), ("G020", "G099")),
    ),
    (
        (
            "Its arguments are plain data, or instances of the classes that the source "
            "defines."
        ),
        (("P053", "P053"), ("G110", "G113")),
    ),
    (
        (
            "The policy opens this level to the researcher and denies neither source "
            "nor modules."
        ),
        (("P050", "P051"), ("P056", "P056")),
    ),
)


def judge_rules(record: WorkunitRecord) -> list[Rule]:
    """Return every rule that an admitted attempt passed, with what was noted."""
    left = sorted(set(record.codes))
    rules: list[Rule] = []
    for demand, ranges in _AREAS:
        own = [code for code in left if _is_in(code, ranges)]
        left = [code for code in left if code not in own]
        rules.append(Rule(demand, _NOTED if own else _PASSED, _remarks(own)))
    rules.append(_review(len(record.reviews)))
    if left:
        rules.append(Rule("Other rules.", _NOTED, _remarks(left)))
    return rules


def _is_in(code: str, ranges: tuple[tuple[str, str], ...]) -> bool:
    number = code.removeprefix("STO-")
    return any(first <= number <= last for first, last in ranges)


def remarks_of(*codes: str) -> tuple[Remark, ...]:
    """Return codes with their titles; empty ones are left out."""
    return _remarks([code for code in codes if code])


def _remarks(codes: list[str]) -> tuple[Remark, ...]:
    book = load_codebook()
    return tuple(
        Remark(code, book[code].title if code in book else "a code of another version")
        for code in codes
    )


def _review(reviews: int) -> Rule:
    demand = "A person reviewed it, where the policy asks for that."
    if not reviews:
        return Rule(demand, "not asked for")
    return Rule(demand, f"signed by {render_amount(reviews, 'reviewer')}")


@dataclass(frozen=True, slots=True)
class Permission:
    """What a level lets a task do."""

    summary: str  # one sentence; empty when this server holds another version
    modules: tuple[str, ...] = ()  # library modules that it may import, sorted


def describe_permission(record: WorkunitRecord) -> Permission:
    """Return what the level of an attempt permits, as far as it is known here."""
    level = _find_level(record.level)
    if level is None or level.digest != record.level_digest:
        return Permission("")
    return Permission(level.summary, tuple(sorted(level.modules)))


def _find_level(name: str) -> Level | None:
    try:
        return load_level(name)
    except UsageError:
        return None

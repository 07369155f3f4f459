"""The gate's verdict in plain words: each rule, and what it said. Pure.

An admission means that no rule refused; remarks (warnings) are in the record by code.
"""

from __future__ import annotations

from dataclasses import dataclass

from stoilo.audit.format.record import WorkunitRecord
from stoilo.core.codebook import load_codebook
from stoilo.core.errors import UsageError
from stoilo.core.levels import Level
from stoilo.policies.levels import load_level
from stoilo.web.wording import render_amount

__all__ = [
    "Permission",
    "Remark",
    "Rule",
    "describe_permission",
    "judge_rules",
    "remarks_of",
]


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that a rule noted without refusing: code and its title."""

    code: str
    title: str


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the gate.

    Attributes:
        demand: what it demands, in plain words.
        outcome: what it said.
        remarks: what it noted.
    """

    demand: str
    outcome: str
    remarks: tuple[Remark, ...] = ()


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
    """What a level lets a task do.

    Attributes:
        summary: one sentence; empty when this server holds another version.
        modules: library modules that it may import, sorted.
    """

    summary: str
    modules: tuple[str, ...] = ()


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

"""Why a source is admitted or not, and what differs between two levels or policies.

The verdicts come from the caller, so that the source is parsed where it should be (in a
child); nothing here looks into it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum

import msgspec

from stoilo.core.codebook import load_codebook
from stoilo.core.levels import Level
from stoilo.core.types import Finding, Severity, Verdict
from stoilo.policies.policy import EVERYBODY, Policy
from stoilo.policies.render import escape


class AtLevel(msgspec.Struct, frozen=True):
    """What one level says about a source."""

    level: str  # its name
    admitted: bool  # whether it admits the source
    open_to: tuple[str, ...]  # whom the policy lets use it; empty: nobody
    review: str  # `none` or `manual`
    findings: tuple[Finding, ...]  # what the gate has to say at this level


class SourceExplained(msgspec.Struct, frozen=True):
    """A source under one policy, narrowest level first; `lowest` is empty for none."""

    policy: str
    lowest: str
    levels: tuple[AtLevel, ...]


def explain_source(
    judge: Callable[[str], Verdict], policy: Policy, levels: Iterable[Level]
) -> SourceExplained:
    """Return what each level says.

    Args:
        judge: gives the gate's verdict at the level of that name.
        policy: under which `judge` judges.
        levels: narrowest first.
    """
    rows = []
    for level in levels:
        verdict = judge(level.name)
        rule = policy.levels.get(level.name)
        rows.append(
            AtLevel(
                level.name,
                verdict.admitted,
                rule.open_to if rule else (),
                rule.review.value if rule else "none",
                verdict.findings,
            )
        )
    lowest = next((row.level for row in rows if row.admitted), "")
    return SourceExplained(policy.name, lowest, tuple(rows))


def render_source(explained: SourceExplained, filename: str) -> str:
    """Return the explanation as text: each level, its findings, and why each exists."""
    shown = escape(filename)
    head = (
        f"{shown}: admitted from level {explained.lowest} on"
        if explained.lowest
        else f"{shown}: no level admits it"
    )
    parts = [f"{head} (policy {escape(explained.policy)})"]
    told: set[str] = set()
    for row in explained.levels:
        parts.append(f"\n{row.level}: {_sum(row)}; {_access(row)}")
        for found in row.findings:
            parts += _render_finding(found, told)
    return "\n".join(parts)


def _sum(row: AtLevel) -> str:
    errors = sum(found.severity is Severity.ERROR for found in row.findings)
    warnings = len(row.findings) - errors
    word = "admitted" if row.admitted else "refused"
    return f"{word}, {errors} errors, {warnings} warnings"


def _access(row: AtLevel) -> str:
    if not row.open_to:
        return "closed by the policy"
    who = (
        "everybody" if EVERYBODY in row.open_to else ", ".join(map(escape, row.open_to))
    )
    return f"open to {who}" + ("; a reviewer signs" if row.review == "manual" else "")


def _render_finding(found: Finding, told: set[str]) -> list[str]:
    """Return a finding's lines; a code's reasons are told once."""
    lines = [f"  {found.line}:{found.column} {found.code} {escape(found.message)}"]
    if found.hint:
        lines.append(f"      = {escape(found.hint)}")
    page = load_codebook().get(found.code)
    if page is not None and found.code not in told:
        told.add(found.code)
        lines.append(f"      why: {page.why}")
    return lines


# What changes between two levels, or between two policies: before anybody publishes one
#
# Each change says whether it lets more in or less. Numbers, names and places only; nothing is
# judged here. Both sides are the operator's own (trusted).


class Effect(StrEnum):
    """What a change does to what is let in."""

    WIDENS = "widens"
    NARROWS = "narrows"
    OTHER = "other"


class Change(msgspec.Struct, frozen=True):
    """One difference."""

    path: str  # where, dotted
    before: str  # on the first side, empty when absent
    after: str  # on the second side, empty when absent
    effect: Effect  # for whoever may submit


_OPPOSITE = {Effect.WIDENS: Effect.NARROWS, Effect.NARROWS: Effect.WIDENS}
_EFFECTS = {
    **dict.fromkeys(("order", "preload", "errno", "facade", "name"), Effect.OTHER),
    **dict.fromkeys(("deny", "review"), Effect.NARROWS),
}
"""Part of a path → what adding there, or raising the number, does; else it widens."""

_UNTOLD = frozenset(
    {"digest", "text", "format", "summary", "extends", "members", "reasons"}
)
_Fact = frozenset[str] | int | str


def diff_levels(one: Level, other: Level) -> tuple[Change, ...]:
    """Return what `other` has otherwise than `one`, table by table."""
    before, after = (
        # The classes themselves, too: one that gives no name can still be extended
        {"overrides": frozenset(level.overrides)} | dict(_facts("", level))
        for level in (one, other)
    )
    return tuple(_compare(before, after))


def diff_policies(one: Policy, other: Policy) -> tuple[Change, ...]:
    """Return what `other` has otherwise than `one`, table by table."""
    roles = [*one.quotas, *other.quotas]  # who has none gets the built-in one
    before, after = (
        msgspec.structs.replace(rules, quotas={one: rules.quota(one) for one in roles})
        for rules in (one, other)
    )
    return tuple(_compare(dict(_facts("", before)), dict(_facts("", after))))


def render_changes(changes: Sequence[Change]) -> str:
    """Return changes one a line: ``+`` widens, ``-`` narrows, ``~`` neither; then the sum."""
    marks = {Effect.WIDENS: "+", Effect.NARROWS: "-", Effect.OTHER: "~"}
    lines = [
        f"{marks[one.effect]} {one.path}: {one.before or '(none)'} -> "
        f"{one.after or '(none)'}"
        for one in changes
    ]
    counts = [
        f"{sum(one.effect is effect for one in changes)} {effect.value}"
        for effect in Effect
    ]
    return "\n".join([*lines, f"{len(changes)} changes: {', '.join(counts)}"])


def _facts(path: str, value: object) -> Iterator[tuple[str, _Fact]]:
    """Yield what stands at `path` and below; a table of texts counts by its keys."""
    value = msgspec.to_builtins(value)
    if isinstance(value, dict) and not (
        path and all(isinstance(inner, str) for inner in value.values())
    ):
        for name, inner in value.items():
            if name not in _UNTOLD:
                yield from _facts(f"{path}.{name}".removeprefix("."), inner)
    elif isinstance(value, dict | list | tuple):
        yield path.removesuffix(".names"), frozenset(value)
    elif path.endswith(".review"):
        yield path, frozenset({str(value)} - {"none"})
    elif isinstance(value, int | str):
        yield path, value


def _compare(before: dict[str, _Fact], after: dict[str, _Fact]) -> Iterator[Change]:
    for path in dict.fromkeys([*before, *after]):
        one, other = before.get(path), after.get(path)
        parts = [_EFFECTS[part] for part in path.split(".") if part in _EFFECTS]
        up = parts[0] if parts else Effect.WIDENS
        down = _OPPOSITE.get(up, up)
        match one, other:
            case (str(), str()) if one != other:
                yield Change(path, one, other, up)
            case (int() | None, int() | None) if one != other:
                effect = up if (other or 0) > (one or 0) else down
                yield Change(path, _show(one), _show(other), effect)
            case (frozenset() | None, frozenset() | None):
                gone, new = one or frozenset(), other or frozenset()
                if gone - new:
                    yield Change(path, ", ".join(sorted(gone - new)), "", down)
                if new - gone:
                    yield Change(path, "", ", ".join(sorted(new - gone)), up)


def _show(amount: int | None) -> str:
    return "" if amount is None else f"{amount:,}"

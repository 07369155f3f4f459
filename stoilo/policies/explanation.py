"""Why a source is admitted or not, level by level, and which level hands out a name.

The verdicts come from the caller, so that the source is parsed where it should be (in a
child); nothing here looks into it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from stoilo.core.codebook import load_codebook
from stoilo.core.errors import UsageError
from stoilo.core.levels import Level
from stoilo.core.types import Finding, Severity, Verdict
from stoilo.policies.policy import EVERYBODY, Policy
from stoilo.policies.render import escape

__all__ = [
    "AtLevel",
    "NameExplained",
    "SourceExplained",
    "explain_name",
    "explain_source",
    "render_name",
    "render_source",
]


class AtLevel(msgspec.Struct, frozen=True):
    """What one level says about a source.

    Attributes:
        level: its name.
        admitted: whether it admits the source.
        open_to: whom the policy lets use it; empty: nobody.
        review: ``none`` or ``manual``.
        findings: what the gate has to say at this level.
    """

    level: str
    admitted: bool
    open_to: tuple[str, ...]
    review: str
    findings: tuple[Finding, ...]


class SourceExplained(msgspec.Struct, frozen=True):
    """A source under one policy, narrowest level first; `lowest` is empty for none."""

    policy: str
    lowest: str
    levels: tuple[AtLevel, ...]


class NameExplained(msgspec.Struct, frozen=True):
    """Where a module, a module's name, a built-in or a type occurs.

    Attributes:
        name: as asked.
        kind: ``module``, ``name``, ``builtin`` or ``type``.
        levels: the levels that hand it out, narrowest first.
        holds: for a module, what its narrowest level hands out of it.
    """

    name: str
    kind: str
    levels: tuple[str, ...]
    holds: tuple[str, ...] = ()


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


def explain_name(name: str, levels: Iterable[Level]) -> NameExplained:
    """Return where the dotted `name` occurs, or raise ``STO-P006``.

    A module wins over a name of its parent; `levels` are narrowest first.
    """
    every = tuple(levels)
    for kind, holds in _KINDS.items():
        found = [level for level in every if holds(level, name)]
        if found:
            inside = _names_of(found[0], name) if kind == "module" else ()
            here = tuple(level.name for level in found)
            return NameExplained(name, kind, here, tuple(sorted(inside)))
    raise UsageError(
        "STO-P006",
        f"{escape(name[:80])!r} is no file, no code and nothing that a level hands out",
        hint="`stoilo policy show LEVEL` lists every name; codes look like STO-P040",
    )


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


def render_name(explained: NameExplained) -> str:
    """Return the explanation of a name as text."""
    levels = ", ".join(explained.levels)
    text = f"{explained.name}: {explained.kind} at level {levels}"
    if explained.holds:
        text += f"\n  {', '.join(explained.holds)}"
    return text


def _names_of(level: Level, module: str) -> tuple[str, ...]:
    rule = level.modules.get(module)
    return rule.names if rule else ()


def _holds_name(level: Level, name: str) -> bool:
    module, _, attribute = name.rpartition(".")
    return attribute in _names_of(level, module)


_KINDS: dict[str, Callable[[Level, str], bool]] = {
    "module": lambda level, name: name in level.modules,
    "type": lambda level, name: name in level.travelling_types,
    "name": _holds_name,
    "builtin": lambda level, name: name in level.builtins,
}
"""Kind of name → whether a level has it, in the order in which they are tried."""


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

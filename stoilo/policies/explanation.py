"""Why a source is admitted or not, and what differs between two levels or policies.

The verdicts come from the caller, so that the source is parsed where it should be (in a
child); nothing here looks into it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import StrEnum

import msgspec

from stoilo.core.codebook import load_codebook
from stoilo.core.errors import UsageError
from stoilo.core.levels import Level, ModuleRule, SyscallRules
from stoilo.core.types import Finding, Severity, Verdict
from stoilo.policies.policy import EVERYBODY, LevelRule, Policy, Review
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


class NameExplained(msgspec.Struct, frozen=True):
    """Where a module, a module's name, a built-in or a type occurs."""

    name: str  # as asked
    kind: str  # `module`, `name`, `builtin` or `type`
    levels: tuple[str, ...]  # the levels that hand it out, narrowest first
    # for a module, what its narrowest level hands out of it
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
    """Return where the dotted `name` occurs, or raise ``STO-U001``.

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
        "STO-U001",
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


# Kind of name → whether a level has it, in the order in which they are tried
_KINDS: dict[str, Callable[[Level, str], bool]] = {
    "module": lambda level, name: name in level.modules,
    "type": lambda level, name: name in level.travelling_types,
    "name": _holds_name,
    "builtin": lambda level, name: name in level.builtins,
}


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


def diff_levels(one: Level, other: Level) -> tuple[Change, ...]:
    """Return what `other` has otherwise than `one`, in the order of the level files."""
    changes = [
        *_values("order", one.order, other.order),
        *_sets("builtins", one.builtins, other.builtins),
        *_modules(one.modules, other.modules),
        *_sets("travelling_types", one.travelling_types, other.travelling_types),
        *_overrides(one.overrides, other.overrides),
        *_sets("preload", one.preload, other.preload, Effect.OTHER),
        *_syscalls(one.syscalls, other.syscalls),
        *_amounts("limits.default", one.limits.default, other.limits.default),
        *_amounts("limits.max", one.limits.max, other.limits.max),
    ]
    return tuple(changes)


def diff_policies(one: Policy, other: Policy) -> tuple[Change, ...]:
    """Return what `other` has otherwise than `one`, in the order of policy files."""
    changes = list(_values("name", one.name, other.name))
    for name in _both(one.levels, other.levels):
        rules = (one.levels.get(name), other.levels.get(name))
        changes += _rules(f"levels.{name}", *(rule or LevelRule() for rule in rules))
    for role in _both(one.quotas, other.quotas):
        quotas = (one.quota(role), other.quota(role))
        changes += _amounts(f"quotas.{role}", *map(msgspec.structs.asdict, quotas))
    limits = (one.limits, other.limits)
    changes += _amounts("limits", *map(msgspec.structs.asdict, limits))
    for name in ("digests", "modules"):
        denied = (getattr(one.deny, name), getattr(other.deny, name))
        changes += _sets(f"deny.{name}", *denied, Effect.NARROWS)
    return tuple(changes)


def render_changes(changes: Collection[Change]) -> str:
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


def _both(one: Collection[str], other: Collection[str]) -> list[str]:
    """Return the names of either, those of `one` first."""
    return list(dict.fromkeys([*one, *other]))


def _values(path: str, before: object, after: object) -> Iterator[Change]:
    if before != after:
        yield Change(path, str(before), str(after), Effect.OTHER)


def _sets(
    path: str,
    before: Collection[str],
    after: Collection[str],
    effect: Effect = Effect.WIDENS,
) -> Iterator[Change]:
    """Yield what was taken and what was added; `effect` is that of adding."""
    opposite = {Effect.WIDENS: Effect.NARROWS, Effect.NARROWS: Effect.WIDENS}
    gone, new = set(before) - set(after), set(after) - set(before)
    if gone:
        taken = opposite.get(effect, effect)
        yield Change(path, ", ".join(sorted(gone)), "", taken)
    if new:
        yield Change(path, "", ", ".join(sorted(new)), effect)


def _modules(
    before: Mapping[str, ModuleRule], after: Mapping[str, ModuleRule]
) -> Iterator[Change]:
    none = ModuleRule()
    for name in _both(before, after):
        one, other = before.get(name, none), after.get(name, none)
        yield from _sets(f"modules.{name}", one.names, other.names)
        if name in before and name in after:
            yield from _values(f"modules.{name}.facade", one.facade, other.facade)


def _overrides(
    before: Mapping[str, tuple[str, ...]], after: Mapping[str, tuple[str, ...]]
) -> Iterator[Change]:
    yield from _sets("overrides", before.keys(), after.keys())
    for name in _both(before, after):
        one, other = before.get(name, ()), after.get(name, ())
        yield from _sets(f"overrides.{name}", one, other)


def _syscalls(before: SyscallRules, after: SyscallRules) -> Iterator[Change]:
    yield from _sets("syscalls.allow", before.allow, after.allow)
    yield from _sets("syscalls.guarded", before.guarded, after.guarded)
    for number in _both(before.errno, after.errno):
        calls = (before.errno.get(number, ()), after.errno.get(number, ()))
        yield from _sets(f"syscalls.errno.{number}", *calls, Effect.OTHER)


def _amounts(
    path: str, before: Mapping[str, int], after: Mapping[str, int]
) -> Iterator[Change]:
    """Yield numbers that differ: a higher one lets more in."""
    for name in _both(before, after):
        one, other = before.get(name), after.get(name)
        if one == other:
            continue
        up = other is not None and (one is None or other > one)
        effect = Effect.WIDENS if up else Effect.NARROWS
        yield Change(f"{path}.{name}", _number(one), _number(other), effect)


def _number(amount: int | None) -> str:
    return "" if amount is None else f"{amount:,}"


def _rules(path: str, before: LevelRule, after: LevelRule) -> Iterator[Change]:
    yield from _sets(f"{path}.open_to", before.open_to, after.open_to)
    if before.review is not after.review:
        asked = after.review is Review.MANUAL
        effect = Effect.NARROWS if asked else Effect.WIDENS
        yield Change(f"{path}.review", before.review, after.review, effect)

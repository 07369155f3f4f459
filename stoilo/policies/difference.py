"""What changes between two levels, or between two policies: before anybody publishes one.

Each change says whether it lets more in or less. Numbers, names and places only; nothing is
judged here. Both sides are the operator's own (trusted).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum

import msgspec

from stoilo.core.levels import Level, ModuleRule, SyscallRules
from stoilo.policies.policy import LevelRule, Policy, Review

__all__ = ["Change", "Effect", "diff_levels", "diff_policies", "render_changes"]


class Effect(StrEnum):
    """What a change does to what is let in."""

    WIDENS = "widens"
    NARROWS = "narrows"
    OTHER = "other"


class Change(msgspec.Struct, frozen=True):
    """One difference.

    Attributes:
        path: where, dotted.
        before: on the first side, empty when absent.
        after: on the second side, empty when absent.
        effect: for whoever may submit.
    """

    path: str
    before: str
    after: str
    effect: Effect


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

"""The gate: a submission and a policy go in, a verdict comes out. Nothing is executed.

`judge` is pure and total: the same request has the same verdict on any machine with the
same engine (`engine_digest`), and every byte string ends in a verdict. Parsing hostile
source can still cost time and memory, so servers call it in a jailed child, and the command
line in a child with limits (`stoilo.policies.jailed`).
"""

from __future__ import annotations

import ast
import functools
import sys
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stoilo.core.digests import Digest, Domain, content_digest, domain_digest
from stoilo.core.levels import load_levels
from stoilo.core.libraries import (
    Library,
    add_libraries,
    level_order,
    library_digests,
    load_libraries,
)
from stoilo.core.types import BOUNDS, Finding, Verdict
from stoilo.policies import entry as entries
from stoilo.policies.findings import (
    FIRST_PLACE,
    Lines,
    Place,
    has_errors,
    in_validators,
    make_finding,
    tidy,
)
from stoilo.policies.imports import Need, find_import_problems, find_needs
from stoilo.policies.levels import check_level_name
from stoilo.policies.limits import (
    find_finally_bombs,
    find_large_constants,
)
from stoilo.policies.policy import Policy, default_policy
from stoilo.policies.text import check_text, find_deceptive_names, find_deep_brackets
from stoilo.sandbox.language.rules import (
    FINALLY,
    LANGUAGE_DIGEST,
    MODULE,
    MODULE_NAME,
    RELATIVE,
    STAR,
)
from stoilo.sandbox.language.transformer import check_tree, find_oversize

if TYPE_CHECKING:
    from stoilo.core.levels import Level


# Part of every cached verdict's key: raised when the gate's own rules change
GATE_VERSION = "3"


_IMPORT_RULES = frozenset(rule.code for rule in (MODULE, MODULE_NAME, RELATIVE, STAR))
# Rules that the language layer repeats for itself: left out where the gate has spoken
_FINALLY_RULES = frozenset({FINALLY.code})


@dataclass(frozen=True, slots=True)
class GateRequest:
    """One submission, as the gate sees it."""

    source: bytes  # the task module exactly as uploaded; hostile
    # the validator module, None when the task has none; hostile
    validator: bytes | None = None
    entry: str = ""  # the function to call; empty for the last `def`
    level: str = ""  # the level asked for; empty for the lowest that admits
    policy: Policy = field(default_factory=default_policy)  # in force, trusted
    # functions that the validator module must define
    validator_entries: tuple[str, ...] = ()
    # dotted library types in the arguments (`numpy.ndarray`)
    argument_types: tuple[str, ...] = ()
    # import names of the libraries that the project's flavors hold; None: all shipped
    libraries: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Module:
    """One parsed module (tree None when it must not be looked at further)."""

    tree: ast.Module | None
    lines: Lines
    findings: list[Finding]
    needs: list[Need]


def judge(request: GateRequest) -> Verdict:
    """Return the verdict on `request`, or raise ``STO-P002`` for an unknown level."""
    check_level_name(request.level)
    common = _find_denials(request)
    modules = [_read_module(request.source, request.policy)]
    common += _check_task(modules[0], request.entry)
    if request.validator is not None:
        modules.append(_read_module(request.validator, request.policy))
        common += in_validators(_check_validators(modules[1], request))
    libraries = _find_libraries(request, modules)
    levels = _open_levels(request.policy, libraries)
    by_level = _find_by_level(request, modules, levels, clean=not has_errors(common))
    return _decide(request, common, by_level, tuple(one.name for one in libraries))


def _find_libraries(
    request: GateRequest, modules: list[_Module]
) -> tuple[Library, ...]:
    """Return the described libraries that the submission needs, in order of names."""
    wanted = {need.module for module in modules for need in module.needs}
    wanted |= set(request.argument_types)
    roots = {name.partition(".")[0] for name in wanted}
    if request.libraries is not None:
        roots &= set(request.libraries)
    return load_libraries(sorted(roots))


def _open_levels(policy: Policy, libraries: tuple[Library, ...]) -> list[Level]:
    """Return the levels that `policy` opens, each with those libraries that it may use."""
    return [
        _widen(
            level, tuple(one for one in libraries if level_order(one) <= level.order)
        )
        for level in load_levels()
        if policy.is_open(level.name)
    ]


@functools.lru_cache(maxsize=64)
def _widened(level: str, libraries: tuple[str, ...]) -> Level:
    """Return the level of that name with these libraries; made once a process."""
    found = next(one for one in load_levels() if one.name == level)
    return add_libraries(found, load_libraries(libraries))


def _widen(level: Level, libraries: tuple[Library, ...]) -> Level:
    return _widened(level.name, tuple(one.name for one in libraries))


@functools.cache
def engine_digest() -> Digest:
    """Return the digest of what a verdict depends on besides the request."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    fixed = f"{GATE_VERSION}\n{python}\n{BOUNDS}\n{LANGUAGE_DIGEST}"
    data = (*(level.digest for level in load_levels()), *library_digests())
    return domain_digest(Domain.VERDICT, fixed.encode(), *map(str.encode, data))


def verdict_key(request: GateRequest) -> Digest:
    """Return the key under which the verdict on `request` may be cached."""
    validator = b"-" if request.validator is None else b"+" + request.validator
    names = "\0".join(
        (
            request.entry,
            request.level,
            "\1".join(request.validator_entries),
            "\1".join(request.argument_types),
            "*" if request.libraries is None else "\1".join(request.libraries),
        )
    )
    return domain_digest(
        Domain.VERDICT,
        engine_digest().encode(),
        request.policy.digest.encode(),
        names.encode("utf-8", "surrogatepass"),
        request.source,
        validator,
    )


def _decide(
    request: GateRequest,
    common: list[Finding],
    by_level: dict[str, list[Finding]],
    libraries: tuple[str, ...],
) -> Verdict:
    """Choose the level and put the findings that belong to it together."""
    clean = not has_errors(common)
    admitting = [
        name for name, found in by_level.items() if clean and not has_errors(found)
    ]
    lowest = admitting[0] if admitting else ""
    level = request.level or lowest or (list(by_level)[-1] if by_level else "")
    found = by_level.get(level)
    if found is None:
        found = [_closed(level)]
    findings = tidy([*common, *found])
    return Verdict(
        admitted=not has_errors(findings),
        level=level,
        lowest_level=lowest,
        policy_digest=request.policy.digest,
        source_digest=content_digest(request.source),
        findings=findings,
        engine_digest=engine_digest(),
        libraries=libraries,
    )


def _closed(level: str) -> Finding:
    message = f"level {level or '(any)'} is closed under this project's policy"
    hint = "use a level that the policy opens"
    return make_finding("STO-P050", FIRST_PLACE, message, hint)


def _find_by_level(
    request: GateRequest,
    modules: list[_Module],
    levels: list[Level],  # open ones, narrowest first
    *,
    clean: bool,
) -> dict[str, list[Finding]]:
    """Return level → its own findings, in the same order.

    Looks for the lowest level that admits, and at the one asked for; the others cannot
    change the verdict. Without a clean module none admits, so that one level is enough.
    """
    asked = request.level
    if not asked and not clean and levels:
        asked = levels[-1].name
    searching = clean
    result: dict[str, list[Finding]] = {}
    for index, level in enumerate(levels):
        if searching or level.name == asked:
            found = _find_at_level(request, modules, level, levels[index + 1 :])
            result[level.name] = found
            searching = searching and has_errors(found)
    return result


def _find_at_level(
    request: GateRequest, modules: list[_Module], level: Level, wider: list[Level]
) -> list[Finding]:
    """Return what `level` has against the arguments, the task and the validators."""
    found = _find_types(level, request.argument_types)
    found += _find_in_module(modules[0], level, wider)
    for module in modules[1:]:
        found += in_validators(_find_in_module(module, level, wider))
    return found


def _find_in_module(module: _Module, level: Level, wider: list[Level]) -> list[Finding]:
    if module.tree is None:
        return []
    found = find_import_problems(module.needs, module.lines, level, wider)
    try:
        language = check_tree(module.tree, level)
    except (RecursionError, MemoryError):
        return [*found, _too_complex()]
    said = _IMPORT_RULES if found else frozenset()
    if any(finding.code == "STO-P027" for finding in module.findings):
        said |= _FINALLY_RULES
    return found + [
        _by_characters(one, module.lines) for one in language if one.code not in said
    ]


def _by_characters(found: Finding, lines: Lines) -> Finding:
    """Return a finding of the language layer, which counts columns in bytes, in ours."""
    place = Place(
        found.line,
        lines.column(found.line, found.column - 1),
        found.end_line,
        lines.column(found.end_line, found.end_column - 1),
    )
    return make_finding(found.code, place, found.message, found.hint, found.severity)


def _find_types(level: Level, argument_types: tuple[str, ...]) -> list[Finding]:
    return [
        make_finding(
            "STO-P053",
            FIRST_PLACE,
            f"an argument of type {name[:80]} cannot travel at level {level.name}",
            "ask for a higher level, or convert the argument to plain Python",
        )
        for name in argument_types
        if name not in level.travelling_types
    ]


def _find_denials(request: GateRequest) -> list[Finding]:
    denied = set(request.policy.deny.digests)
    parts = [request.source]
    if request.validator is not None:
        parts.append(request.validator)
    message = "this project's policy denies exactly this source"
    hint = "ask the project's operator why"
    return [
        make_finding("STO-P051", FIRST_PLACE, message, hint)
        for part in parts
        if content_digest(part) in denied
    ]


def _check_task(module: _Module, entry: str) -> list[Finding]:
    if module.tree is None:
        return module.findings
    found = entries.find_entry_problems(module.tree, module.lines, entry)
    return module.findings + found


def _check_validators(module: _Module, request: GateRequest) -> list[Finding]:
    if module.tree is None:
        return module.findings
    missing = entries.find_missing(module.tree, request.validator_entries)
    return module.findings + missing


def _read_module(data: bytes, policy: Policy) -> _Module:
    """Run everything that does not depend on the level, cheapest first."""
    report = check_text(data, min(policy.limits.source_bytes, BOUNDS.source_bytes))
    if report.text is None:
        return _Module(None, Lines(""), list(report.findings), [])
    lines = Lines(report.text)
    findings = find_deep_brackets(report.text, BOUNDS.ast_depth)
    findings += find_deceptive_names(report.text)
    if has_errors(findings):
        return _Module(None, lines, findings, [])
    tree, problems = _parse(report.text, lines, policy)
    findings += problems
    if tree is None:
        return _Module(None, lines, findings, [])
    findings += find_finally_bombs(tree, lines)
    findings += find_large_constants(tree, lines)
    findings += entries.find_main_block(tree, lines)
    findings += entries.find_repeated_definitions(tree, lines)
    needs = find_needs(tree)
    findings += _find_denied_modules(needs, lines, policy)
    return _Module(tree, lines, findings, needs)


def _parse(
    text: str, lines: Lines, policy: Policy
) -> tuple[ast.Module | None, list[Finding]]:
    """Parse bounded text; every way the parser can fail becomes a finding."""
    nodes = min(policy.limits.ast_nodes, BOUNDS.ast_nodes)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text, "<task>", feature_version=(3, 11))
        oversize = find_oversize(tree, nodes)
    except SyntaxError as error:
        return None, [_syntax_finding(error)]
    except (RecursionError, MemoryError, ValueError, OverflowError):
        return None, [_too_complex()]
    return (None, [_by_characters(oversize, lines)]) if oversize else (tree, [])


def _syntax_finding(error: SyntaxError) -> Finding:
    line, column = max(error.lineno or 1, 1), max(error.offset or 1, 1)
    end_line = max(error.end_lineno or line, line)
    end_column = max(error.end_offset or column + 1, 1)
    if end_line == line:
        end_column = max(end_column, column + 1)
    place = Place(line, column, end_line, end_column)
    message = f"this is not Python 3.11: {error.msg}"
    return make_finding("STO-P023", place, message, "repair the syntax")


def _too_complex() -> Finding:
    message = "the source is too complex for the parser"
    hint = "shorten long chains and split the code into functions"
    return make_finding("STO-P022", FIRST_PLACE, message, hint)


def _find_denied_modules(
    needs: list[Need], lines: Lines, policy: Policy
) -> list[Finding]:
    denied = set(policy.deny.modules)
    if not denied:
        return []
    hint = "ask the project's operator why, or do without it"
    return [
        make_finding(
            "STO-P051",
            lines.place(need.node),
            f"this project's policy denies module {name}",
            hint,
        )
        for need in needs
        for name in _denied_names(need, denied)
    ]


def _denied_names(need: Need, denied: set[str]) -> list[str]:
    """Return the denied modules that `need` reaches: itself or a parent."""
    full = f"{need.module}.{need.name}" if need.name else need.module
    parts = full.split(".")
    prefixes = {".".join(parts[: index + 1]) for index in range(len(parts))}
    return sorted(prefixes & denied)

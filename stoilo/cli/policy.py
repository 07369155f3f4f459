"""`stoilo policy`: check a source as the server would, show and compare rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from stoilo.cli.groups import TableGroup, check_platform, require_extra
from stoilo.cli.output import JSON, say
from stoilo.cli.schemas import SCHEMAS, render_schema
from stoilo.cli.shell import LEVEL, complete_level
from stoilo.cli.sources import read_as_task, read_policy, read_source
from stoilo.core.errors import UsageError
from stoilo.core.levels import load_levels
from stoilo.core.libraries import load_libraries, load_library
from stoilo.policies.explanation import (
    Change,
    diff_levels,
    diff_policies,
    render_changes,
)
from stoilo.policies.gate import GateRequest
from stoilo.policies.jailed import check_in_child
from stoilo.policies.levels import level_names, load_level
from stoilo.policies.policy import (
    EVERYBODY,
    LevelRule,
    Policy,
    default_policy,
)
from stoilo.policies.render import render_json, render_sarif, render_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stoilo.core.levels import Level
    from stoilo.core.libraries import Library


REFUSED = 3


class LevelLine(msgspec.Struct, frozen=True):
    """One level, in the list of all."""

    name: str
    order: int
    summary: str
    digest: str
    open: bool
    open_to: tuple[str, ...]
    review: str


class LibraryLine(msgspec.Struct, frozen=True):
    """One described library, in the list of all."""

    name: str
    level: str  # the narrowest that may use it
    summary: str
    digest: str


class Overview(msgspec.Struct, frozen=True):
    """A policy, what it makes of the shipped levels, and the described libraries."""

    policy: str
    policy_digest: str
    levels: tuple[LevelLine, ...]
    libraries: tuple[LibraryLine, ...]

    @classmethod
    def of(cls, rules: Policy, levels: tuple[Level, ...]) -> Overview:
        """Return the overview of `levels` under `rules`."""
        libraries = tuple(
            LibraryLine(one.name, one.level, one.summary, one.digest)
            for one in load_libraries()
        )
        lines = tuple(_line(rules, one) for one in levels)
        return cls(rules.name, rules.digest, lines, libraries)


def _line(rules: Policy, level: Level) -> LevelLine:
    rule = rules.levels.get(level.name, LevelRule())
    return LevelLine(
        level.name,
        level.order,
        level.summary,
        level.digest,
        rules.is_open(level.name),
        rule.open_to,
        rule.review.value,
    )


@click.group(
    cls=TableGroup,
    table={
        "check": (__name__, "check", "Check a file as the server's gate would."),
        # Loads cryptography and gRPC, which `check` and `show` do without.
        "review": (
            "stoilo.cli.review",
            "review",
            "Read, sign and refuse tasks that wait for a reviewer.",
        ),
        "show": (__name__, "show", "Show levels and policies, and what differs."),
    },
)
def policy() -> None:
    """Check source against a level; show and compare levels and policies."""


@click.command()
@click.argument("file")
@click.option("--entry", default="", help="Function to call; default: the last def.")
@LEVEL
@click.option("--policy", "policy_file", help="Policy file; default: the shipped one.")
@click.option(
    "--format",
    "output",
    type=click.Choice(["text", "json", "sarif"]),
    default="text",
    show_default=True,
)
@click.option("--json", "as_json", is_flag=True, help="Same as --format json.")
def check(
    file: str,
    entry: str,
    level: str,
    policy_file: str | None,
    output: str,
    as_json: bool,
) -> int:
    """Check FILE (- for stdin) as the server's gate would. Nothing in it is run.

    Exit code 0: admitted, 3: refused. `--format sarif` is SARIF 2.1.0, for code hosts
    and editors.
    Example: stoilo policy check task.py --level numeric
    """
    source = read_as_task(read_source(file))
    request = GateRequest(
        source=source, entry=entry, level=level, policy=read_policy(policy_file)
    )
    verdict = check_in_child(request)
    if output == "sarif":
        click.echo(render_sarif(verdict, source, file))
    elif as_json or output == "json":
        click.echo(render_json(verdict))
    else:
        click.echo(render_text(verdict, source, file))
    return 0 if verdict.admitted else REFUSED


@click.command()
@click.argument(
    "subject",
    metavar="LEVEL|LIBRARY|POLICY",
    required=False,
    shell_complete=complete_level,
)
@click.option("--policy", "policy_file", help="Policy file; default: the shipped one.")
@click.option(
    "--against",
    metavar="LEVEL|LIBRARY|POLICY",
    help="Only what it has otherwise than this one: + widens, - narrows, ~ neither.",
)
@click.option(
    "--system-calls", is_flag=True, help="What the kernel layer lets through, and why."
)
@click.option(
    "--schema",
    type=click.Choice(list(SCHEMAS)),
    help="JSON Schema of that kind of file.",
)
@JSON
def show(
    subject: str | None,
    policy_file: str | None,
    against: str | None,
    system_calls: bool,
    schema: str | None,
    as_json: bool,
) -> None:
    """Show what a level or a library hands out, or list them and who may use them.

    With --against two levels, or two policy files (`default`: the shipped one), are
    compared. --system-calls ends with the filters that processes load on this machine.
    Example: stoilo policy show numeric --against pure
    """
    if schema is not None:
        click.echo(render_schema(schema), nl=False)
    elif subject is None and (against or system_calls):
        raise UsageError("STO-U003", "name the level or policy to be shown")
    elif subject is None:
        overview = Overview.of(read_policy(policy_file), load_levels())
        say(overview, _render_overview(overview), as_json=as_json)
    elif against is not None:
        changes = _compare(_read_side(against), _read_side(subject))
        say(changes, render_changes(changes), as_json=as_json)
    elif system_calls:
        _show_system_calls(load_level(subject), as_json=as_json)
    elif library := load_library(subject):
        say(library, _render_library(library), as_json=as_json)
    else:
        one = load_level(subject)
        say(one, _render_level(one), as_json=as_json)


def _compare(before: Policy | Level, after: Policy | Level) -> tuple[Change, ...]:
    if isinstance(before, Policy) and isinstance(after, Policy):
        return diff_policies(before, after)
    if not isinstance(before, Policy) and not isinstance(after, Policy):
        return diff_levels(before, after)
    raise UsageError(
        "STO-U003",
        "a level cannot be compared with a policy",
        hint="name two levels, or two policy files",
    )


def _show_system_calls(rules: Level, *, as_json: bool) -> None:
    check_platform()
    require_extra("executor")
    from stoilo.sandbox.kernel import filter_text  # noqa: PLC0415 - Linux only

    text = filter_text.render_filter(rules) + filter_text.list_programs(rules)
    say(filter_text.audit_level(rules), text.removesuffix("\n"), as_json=as_json)


def _read_side(name: str) -> Policy | Level:
    if name in level_names():
        return load_level(name)
    return default_policy() if name == "default" else read_policy(name)


def _render_overview(overview: Overview) -> str:
    rows = [
        f"{level.order}  {level.name:<10} {level.summary}" + f"  ({_access(level)})"
        for level in overview.levels
    ]
    rows += [
        f"  {line.name}: {line.summary} (from level {line.level})"
        for line in overview.libraries
    ]
    head = f"policy {overview.policy}, digest {overview.policy_digest}"
    return "\n".join([head, *rows])


def _access(level: LevelLine) -> str:
    if not level.open:
        return "closed by the policy"
    who = ", ".join(level.open_to).replace(EVERYBODY, "everybody")
    return f"open to {who}" + ("; a reviewer signs" if level.review == "manual" else "")


def _render_modules(one: Level | Library) -> Iterator[str]:
    for name, rule in sorted(one.modules.items()):
        yield f"  {name}: {', '.join(sorted(rule.names))}"


def _render_library(library: Library) -> str:
    parts = [
        f"{library.name} (from level {library.level}): {library.summary}",
        f"distribution {library.distribution} {library.versions}",
        f"digest {library.digest}",
        "",
        "modules:",
        *_render_modules(library),
    ]
    if library.travelling_types:
        parts += ["", f"values: {', '.join(sorted(library.travelling_types))}"]
    if library.withheld:
        parts += ["", "withheld:"]
        parts += [f"  {name}: {why}" for name, why in sorted(library.withheld.items())]
    return "\n".join(parts)


def _render_level(level: Level) -> str:
    parts = [
        f"{level.name} (order {level.order}): {level.summary}",
        f"digest {level.digest}",
        "",
        "modules:",
        *_render_modules(level),
    ]
    parts += ["", f"builtins: {', '.join(sorted(level.builtins))}"]
    if level.travelling_types:
        parts.append(f"values: {', '.join(sorted(level.travelling_types))}")
    parts += ["", "limits (default / largest):"]
    names = list(level.default_limits().__slots__)
    parts += [
        f"  {name}: {getattr(level.default_limits(), name):,}"
        f" / {getattr(level.max_limits(), name):,}"
        for name in names
    ]
    return "\n".join(parts)

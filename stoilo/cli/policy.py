"""`stoilo policy`: check a source as the server would, show what levels hand out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from stoilo.core.errors import UsageError
from stoilo.policies.check import check_in_child
from stoilo.policies.gate import GateRequest
from stoilo.policies.levels import load_level, load_levels
from stoilo.policies.policy import Policy, default_policy, parse_policy
from stoilo.policies.render import render_json, render_text

if TYPE_CHECKING:
    from stoilo.core.levels import Level

__all__ = ["policy", "read_source"]

REFUSED = 3
_READ_BYTES = 16 * 1024 * 1024  # more than any source may have; the gate refuses less


class LevelLine(msgspec.Struct, frozen=True):
    """One level, in the list of all."""

    name: str
    order: int
    summary: str
    digest: str
    open: bool


class Overview(msgspec.Struct, frozen=True):
    """A policy and what it makes of the shipped levels."""

    policy: str
    policy_digest: str
    levels: tuple[LevelLine, ...]

    @classmethod
    def of(cls, rules: Policy, levels: tuple[Level, ...]) -> Overview:
        """Return the overview of `levels` under `rules`."""
        lines = tuple(
            LevelLine(
                one.name, one.order, one.summary, one.digest, rules.is_open(one.name)
            )
            for one in levels
        )
        return cls(rules.name, rules.digest, lines)


@click.group()
def policy() -> None:
    """Check source against a level, show levels."""


@policy.command()
@click.argument("file")
@click.option("--entry", default="", help="Function to call; default: the last def.")
@click.option("--level", default="pure", show_default=True, help="Level to check for.")
@click.option("--policy", "policy_file", help="Policy file; default: the shipped one.")
@click.option(
    "--format",
    "output",
    type=click.Choice(["text", "json"]),
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

    Exit code 0: admitted, 3: refused.
    Example: stoilo policy check task.py --level numeric
    """
    source = read_source(file)
    request = GateRequest(
        source=source, entry=entry, level=level, policy=_read_policy(policy_file)
    )
    verdict = check_in_child(request)
    if as_json or output == "json":
        click.echo(render_json(verdict))
    else:
        click.echo(render_text(verdict, source, file))
    return 0 if verdict.admitted else REFUSED


@policy.command()
@click.argument("level", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def show(level: str | None, as_json: bool) -> None:
    """Show what LEVEL hands out, or list the levels.

    Example: stoilo policy show numeric
    """
    if level is None:
        overview = Overview.of(default_policy(), load_levels())
        text = _encode(overview) if as_json else _render_overview(overview)
    else:
        one = load_level(level)
        text = _encode(one) if as_json else _render_level(one)
    click.echo(text)


def read_source(file: str) -> bytes:
    """Return the bytes of `file` (``-``: stdin).

    Raises:
        UsageError: ``STO-U004``, not readable or beyond 16 MiB.
    """
    try:
        if file == "-":
            data = sys.stdin.buffer.read(_READ_BYTES + 1)
        else:
            with Path(file).open("rb") as stream:
                data = stream.read(_READ_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise UsageError("STO-U004", f"cannot read {file!r}: {reason}") from error
    if len(data) > _READ_BYTES:
        raise UsageError("STO-U004", f"{file!r} is larger than {_READ_BYTES:,} bytes")
    return data


def _read_policy(file: str | None) -> Policy:
    return default_policy() if file is None else parse_policy(read_source(file))


def _encode(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _render_overview(overview: Overview) -> str:
    rows = [
        f"{level.order}  {level.name:<10} {level.summary}"
        + ("" if level.open else "  (closed by the policy)")
        for level in overview.levels
    ]
    head = f"policy {overview.policy}, digest {overview.policy_digest}"
    return "\n".join([head, *rows])


def _render_level(level: Level) -> str:
    parts = [
        f"{level.name} (order {level.order}): {level.summary}",
        f"digest {level.digest}",
        "",
        "modules:",
    ]
    parts += [
        f"  {name}: {', '.join(sorted(rule.names))}"
        for name, rule in sorted(level.modules.items())
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

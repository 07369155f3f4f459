"""`stoilo volunteer opt-in`: what this computer may be asked to run, by its own person."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click
import msgspec

from stoilo.cli.output import FILE, JSON, say
from stoilo.cli.shell import complete_level
from stoilo.core.errors import UsageError
from stoilo.core.types import RunLimits
from stoilo.executor.verifier.installation import OptIn, default_files, load_opt_in
from stoilo.executor.volunteer.optin_file import (
    NO_LIMIT,
    FileState,
    describe_file,
    read_own_file,
    write_opt_in,
)

_LIMITS = tuple(field.name for field in dataclasses.fields(RunLimits))


class Allowed(msgspec.Struct, frozen=True):
    """An opt-in, as it is shown; limits that are not set are left out."""

    max_level: str
    require_review: bool
    require_public_source: bool
    topics: tuple[str, ...]
    limits: dict[str, int]


@click.command("opt-in")
@click.option(
    "--max-level",
    help="Highest level: pure, numeric, tensor, gpu.",
    shell_complete=complete_level,
)
@click.option(
    "--require-review/--no-require-review",
    default=None,
    help="Only tasks that a reviewer signed.",
)
@click.option(
    "--require-public-source/--no-require-public-source",
    default=None,
    help="Only tasks whose source may be published.",
)
@click.option(
    "--topic", "topics", multiple=True, help="Only tasks of these; again for more."
)
@click.option("--any-topic", is_flag=True, help="Forget the topics.")
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=N",
    help=f"Own limit, 0 for none: {', '.join(_LIMITS)}.",
)
@click.option(
    "--system", is_flag=True, help="The whole computer's file (needs its rights)."
)
@click.option(
    "--file", type=FILE, help="Another file, for `stoilo volunteer --opt-in FILE`."
)
@JSON
def opt_in(  # noqa: PLR0917 - click passes options by name
    max_level: str | None,
    require_review: bool | None,
    require_public_source: bool | None,
    topics: tuple[str, ...],
    any_topic: bool,
    limits: tuple[str, ...],
    system: bool,
    file: Path | None,
    as_json: bool,
) -> int:
    """Say what this computer may be asked to run, or show what it may.

    What is named is written to the opt-in file; the rest of it stays as it was. Where
    nothing is named, every file is shown, checked as a volunteer would, and what they
    allow together: exit code 0, or 2 when a file cannot be used; then nothing runs at
    all. No server can change an opt-in. Without a file: level pure, nothing else.

    Example: stoilo volunteer opt-in --max-level numeric --limit cpu_s=600
    """
    flags = (require_review, require_public_source)
    if not (
        max_level or topics or any_topic or limits or any(f is not None for f in flags)
    ):
        return _show(file, as_json=as_json)
    place = _place(system, file)
    own = read_own_file(place)
    changed = dataclasses.replace(
        own,
        max_level=max_level or own.max_level,
        require_review=_chosen(require_review, own.require_review),
        require_public_source=_chosen(require_public_source, own.require_public_source),
    )
    if topics or any_topic:
        changed = dataclasses.replace(changed, topics=frozenset(topics))
    write_opt_in(place, _with_limits(changed, limits), system=system)
    state = describe_file(place)
    say(_record(state), _describe(state), as_json=as_json)
    return 0


def _show(file: Path | None, *, as_json: bool) -> int:
    places = (*default_files(), *([file] if file else []))
    states = [describe_file(place) for place in places]
    usable = not any(state.error for state in states)
    allowed = _allowed(load_opt_in(places)) if usable else None
    lines = [*map(_describe, states), "nothing runs until that is mended"]
    if allowed is not None:
        lines[-1] = f"allowed: {_words(allowed)}"
    record = {"files": [*map(_record, states)], "allowed": allowed}
    say(record, "\n".join(lines), as_json=as_json)
    return 0 if usable else UsageError.exit_code


def _chosen(said: bool | None, present: bool) -> bool:
    return present if said is None else said


def _place(system: bool, file: Path | None) -> Path:
    from stoilo.executor.verifier.installation import (  # noqa: PLC0415 - POSIX
        default_files,
    )

    if system and file is not None:
        raise UsageError("STO-U003", "--system and a file exclude each other")
    whole, own = default_files()
    return whole if system else file or own


def _with_limits(opt_in: OptIn, words: tuple[str, ...]) -> OptIn:
    none = dict.fromkeys(_LIMITS, NO_LIMIT)
    amounts = dict(none) if opt_in.limits is None else dataclasses.asdict(opt_in.limits)
    for word in words:
        name, _, amount = word.partition("=")
        if name not in _LIMITS or not (amount.isascii() and amount.isdecimal()):
            raise UsageError(
                "STO-U003",
                f"{word[:80]!r} is not NAME=N",
                hint=f"names are {', '.join(_LIMITS)}",
            )
        amounts[name] = min(int(amount[:20]) or NO_LIMIT, NO_LIMIT)
    limits = None if amounts == none else RunLimits(**amounts)
    return dataclasses.replace(opt_in, limits=limits)


def _allowed(opt_in: OptIn) -> Allowed:
    limits = {} if opt_in.limits is None else dataclasses.asdict(opt_in.limits)
    return Allowed(
        opt_in.max_level,
        opt_in.require_review,
        opt_in.require_public_source,
        tuple(sorted(opt_in.topics)),
        {name: amount for name, amount in limits.items() if amount < NO_LIMIT},
    )


def describe_allowed(opt_in: OptIn) -> str:
    """Return what an opt-in allows, in words."""
    return _words(_allowed(opt_in))


def _record(state: FileState) -> dict[str, object]:
    says = None if state.opt_in is None else _allowed(state.opt_in)
    known = {"file": str(state.path), "exists": state.exists, "error": state.error}
    return known | {"says": says}


def _describe(state: FileState) -> str:
    said = "no file" if state.opt_in is None else describe_allowed(state.opt_in)
    return f"{state.path}: {state.error or said}"


def _words(allowed: Allowed) -> str:
    parts = [f"level {allowed.max_level} at most"]
    parts += ["reviewed tasks only"] if allowed.require_review else []
    parts += ["public source only"] if allowed.require_public_source else []
    parts += [f"topics {', '.join(allowed.topics)}"] if allowed.topics else []
    parts += [f"{name} {amount:,}" for name, amount in allowed.limits.items()]
    return "; ".join(parts)

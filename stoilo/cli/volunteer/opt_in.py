"""`stoilo volunteer opt-in`: what this computer may be asked to run, by its own person."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from stoilo.core.errors import UsageError, show_plainly
from stoilo.core.types import RunLimits

if TYPE_CHECKING:
    from stoilo.executor.verifier.installation import OptIn
    from stoilo.executor.volunteer.optin_file import FileState


_FILE = click.Path(path_type=Path, dir_okay=False)
_LIMITS = tuple(field.name for field in dataclasses.fields(RunLimits))

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object.")
system_option = click.option(
    "--system", is_flag=True, help="The whole computer's file (needs its rights)."
)
file_option = click.option(
    "--file", type=_FILE, help="Another file, for `stoilo volunteer --opt-in FILE`."
)


class Allowed(msgspec.Struct, frozen=True):
    """An opt-in, as it is shown; limits that are not set are left out."""

    max_level: str
    require_review: bool
    require_public_source: bool
    topics: tuple[str, ...]
    limits: dict[str, int]


class FileLine(msgspec.Struct, frozen=True):
    """One place, as it is shown."""

    file: str
    exists: bool
    error: str
    says: Allowed | None


class Shown(msgspec.Struct, frozen=True):
    """All places and what they allow together; None while one cannot be used."""

    files: tuple[FileLine, ...]
    allowed: Allowed | None


@click.group("opt-in")
def opt_in() -> None:
    """Show and write the opt-in: what this computer may be asked to run.

    No server can change it. Without a file: level pure, nothing else.
    """


@opt_in.command()
@file_option
@json_option
def show(file: Path | None, as_json: bool) -> int:
    """Show every opt-in file, checked as a volunteer would, and what they allow together.

    Exit code 0, or 2 when a file cannot be used: then nothing runs at all.
    """
    from stoilo.executor.verifier.installation import (  # noqa: PLC0415 - POSIX
        default_files,
        load_opt_in,
    )
    from stoilo.executor.volunteer.optin_file import describe_file  # noqa: PLC0415 - POSIX

    places = (*default_files(), *([file] if file else []))
    states = [describe_file(place) for place in places]
    usable = not any(state.error for state in states)
    allowed = _allowed(load_opt_in(places)) if usable else None
    shown = Shown(tuple(map(_line, states)), allowed)
    click.echo(msgspec.json.encode(shown).decode() if as_json else _render(shown))
    return 0 if usable else UsageError.exit_code


@opt_in.command("set")
@click.option("--max-level", help="Highest level: pure, numeric, tensor, gpu.")
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
@system_option
@file_option
@json_option
def set_file(  # noqa: PLR0917 - click passes options by name
    max_level: str | None,
    require_review: bool | None,
    require_public_source: bool | None,
    topics: tuple[str, ...],
    any_topic: bool,
    limits: tuple[str, ...],
    system: bool,
    file: Path | None,
    as_json: bool,
) -> None:
    """Write the opt-in file; what is not named stays as it was.

    Example: stoilo volunteer opt-in set --max-level numeric --limit cpu_s=600
    """
    from stoilo.executor.volunteer.optin_file import (  # noqa: PLC0415 - POSIX
        describe_file,
        read_own_file,
        write_opt_in,
    )

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
    line = _line(describe_file(place))
    click.echo(msgspec.json.encode(line).decode() if as_json else _render_file(line))


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
    from stoilo.executor.volunteer.optin_file import NO_LIMIT  # noqa: PLC0415 - POSIX

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
    from stoilo.executor.volunteer.optin_file import NO_LIMIT  # noqa: PLC0415 - POSIX

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


def _line(state: FileState) -> FileLine:
    says = None if state.opt_in is None else _allowed(state.opt_in)
    return FileLine(str(state.path), state.exists, state.error, says)


def _render(shown: Shown) -> str:
    parts = [_render_file(line) for line in shown.files]
    if shown.allowed is None:
        return "\n".join([*parts, "nothing runs until that is mended"])
    return "\n".join([*parts, f"allowed: {_words(shown.allowed)}"])


def _render_file(line: FileLine) -> str:
    if line.error:
        return show_plainly(f"{line.file}: {line.error}")
    said = _words(line.says) if line.says is not None else "no file"
    return show_plainly(f"{line.file}: {said}")


def _words(allowed: Allowed) -> str:
    parts = [f"level {allowed.max_level} at most"]
    parts += ["reviewed tasks only"] if allowed.require_review else []
    parts += ["public source only"] if allowed.require_public_source else []
    parts += [f"topics {', '.join(allowed.topics)}"] if allowed.topics else []
    parts += [f"{name} {amount:,}" for name, amount in allowed.limits.items()]
    return "; ".join(parts)

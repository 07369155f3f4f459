"""`stoilo flavor describe | check`: libraries drafted, and held against what is installed."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from stoilo.cli.output import FILE, JSON, cannot_write, read_file, say
from stoilo.core.errors import InternalError, UsageError
from stoilo.core.libraries import LIBRARY_BYTES, Library, parse_library
from stoilo.flavors.describing.check import Report, check_library
from stoilo.flavors.describing.drafting import describe_package
from stoilo.flavors.describing.read_list import parse_read_list, renew

_READ_BYTES = 16 << 20
_REFUSED = 3


@click.command()
@click.argument("package")
@click.option(
    "--module",
    "modules",
    multiple=True,
    metavar="DOTTED",
    help="A module to describe; repeatable. Default: the package's public ones.",
)
@click.option("--output", type=FILE, help="Default: stdout.")
@JSON
def describe(
    package: str, modules: tuple[str, ...], output: Path | None, *, as_json: bool
) -> None:
    """Write the first draft of a library's file from the installed PACKAGE.

    PACKAGE is an import name. Public names are sorted by a scan of their source: open,
    withheld with the reason, or closed until a person has read the places that it names.

    Example: stoilo flavor describe scipy --module scipy.linalg --output scipy.toml
    """
    text = describe_package(package, modules)
    if output is not None:
        _write(output, text)
    shown = "" if output is not None else text.rstrip("\n")
    say({"package": package, "library": text}, shown, as_json=as_json)


@click.command()
@click.argument("file", type=FILE)
@click.option(
    "--read",
    "read_list",
    type=FILE,
    help="What was read, with reasons. Default: FILE with the suffix .read.txt.",
)
@click.option("--renew", is_flag=True, help="Write what is unread into that list.")
@click.option("--python", type=FILE, help="Interpreter whose packages are asked.")
@click.option(
    "--budget",
    "budget_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Call nothing more after so long. Default: try everything.",
)
@JSON
def check(
    file: Path,
    read_list: Path | None,
    *,
    renew: bool,
    python: Path | None,
    budget_s: float | None,
    as_json: bool,
) -> int:
    """Hold a library's FILE against the package that is installed.

    Its version, every name and class, what is imported or opened late, where calls lead, and
    whether somebody has read each place that opens, starts or evaluates something. The
    library is called with nonsense, in a process of its own. Exit code 0: sound; 3: not.

    Example: stoilo flavor check scipy.toml --read scipy.read.txt
    """
    library = _load(file)
    place = read_list or file.with_suffix(".read.txt")
    text = ""
    if place.exists() or (read_list is not None and not renew):
        text = read_file(place, _READ_BYTES).decode("utf-8", "replace")
    report = check_library(library, text, python=python, budget_s=budget_s)
    if renew:
        _write(place, _renewed(report, text))
    say(_document(report), _render(report), as_json=as_json)
    return _REFUSED if report.faults else 0


def _load(file: Path) -> Library:
    """Return the library of a file; raises ``STO-P003`` for one that is broken."""
    try:
        return parse_library(read_file(file, LIBRARY_BYTES))
    except InternalError as error:
        raise UsageError("STO-P003", f"{file}: {error.message}") from error


def _renewed(report: Report, text: str) -> str:
    return renew(report.findings, parse_read_list(text))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise cannot_write(path, error) from error


def _document(report: Report) -> dict[str, object]:
    document: dict[str, object] = msgspec.to_builtins(report)
    return document | {"sound": not report.faults, "dangers": len(report.dangers)}


def _render(report: Report) -> str:
    lines = []
    for fault in report.faults:
        lines.append(f"{fault.code}: {fault.message}")
        lines += [f"  {place}" for place in fault.places]
        lines.append(f"  {fault.hint}")
    lines += [f"noted: {note}" for note in report.notes]
    more = "" if report.complete else ", not all of them"
    tried = f"{report.calls:,} calls{more}, {len(report.dangers)} functions to read"
    sound = "sound" if not report.faults else f"{len(report.faults)} faults"
    head = f"{report.library} {report.version or '(not installed)'}"
    return "\n".join([*lines, f"{head}: {sound}; {tried}"])

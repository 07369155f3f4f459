"""`stoilo flavor id | show`: what a flavor is called, and what it holds.

A researcher needs no more than the base installation for these.
"""

from __future__ import annotations

import click

from stoilo.cli.output import JSON, say
from stoilo.cli.sources import read_source
from stoilo.core.digests import content_digest
from stoilo.core.errors import UsageError
from stoilo.flavors.described import flavor_level
from stoilo.flavors.manifest import (
    FlavorManifest,
    find_flavor,
    flavor_alias,
    held_libraries,
    parse_manifest,
    shipped_flavors,
)


@click.command("id")
@click.argument("file")
@JSON
def identify(file: str, as_json: bool) -> None:
    """Print the identifiers of the manifest FILE: SHA-256, and the thesis's MD5.

    Example: stoilo flavor id dependencies.yaml
    """
    data = read_source(file)
    ids = {"sha256": content_digest(data), "md5": flavor_alias(data)}
    text = "\n".join(f"{name} {value}" for name, value in ids.items())
    say(ids, text, as_json=as_json)
    try:
        parse_manifest(data)
    except UsageError as error:
        click.echo(f"note: {error}", err=True)


@click.command()
@click.argument("name", metavar="NAME", required=False)
@JSON
def show(name: str | None, as_json: bool) -> None:
    """Show the flavor NAME (a name, a SHA-256 or an MD5); without one, list the shipped.

    What lies in a built tree says its MANIFEST; `stoilo flavor compare PATH` checks it.
    """
    if name is None:
        found = shipped_flavors()
        say([*map(_document, found)], "\n".join(map(_line, found)), as_json=as_json)
        return
    one = find_flavor(name)
    libraries = [library.name for library in held_libraries(one)]
    document = _document(one) | {"level": flavor_level(one), "libraries": libraries}
    lines = []
    for key, value in document.items():
        text = ", ".join(value) if isinstance(value, list) else value
        lines.append(f"{key:<13} {text}")
    say(document, "\n".join(lines), as_json=as_json)


def _line(one: FlavorManifest) -> str:
    contents = ", ".join(one.requirements) or "the standard library only"
    return f"{one.name:<12} {one.digest[:16]}  Python {one.python}: {contents}"


def _document(one: FlavorManifest) -> dict[str, str | list[str]]:
    return {
        "name": one.name,
        "sha256": one.digest,
        "md5": one.alias,
        "python": one.python,
        "requirements": list(one.requirements),
        "modules": list(one.modules),
    }

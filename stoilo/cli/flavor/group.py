"""`stoilo flavor`: frozen dependency sets: their names, locks, builds and contents."""

from __future__ import annotations

import json

import click

from stoilo.cli.flavor.attest import attest
from stoilo.cli.flavor.build import build, lock
from stoilo.cli.flavor.check import compare, verify
from stoilo.cli.policy import read_source
from stoilo.core.digests import content_digest
from stoilo.core.errors import UsageError
from stoilo.flavors.manifest import (
    FlavorManifest,
    find_flavor,
    flavor_alias,
    parse_manifest,
    shipped_flavors,
)


@click.group()
def flavor() -> None:
    """Name frozen dependency sets, build them, look into them."""


for command in (lock, build, attest, verify, compare):
    flavor.add_command(command)


@flavor.command(name="id")
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def identify(file: str, as_json: bool) -> None:
    """Print the identifiers of the manifest FILE: SHA-256, and the thesis's MD5.

    Example: stoilo flavor id dependencies.yaml
    """
    data = read_source(file)
    ids = {"sha256": content_digest(data), "md5": flavor_alias(data)}
    if as_json:
        click.echo(json.dumps(ids))
    else:
        click.echo("\n".join(f"{name} {value}" for name, value in ids.items()))
    try:
        parse_manifest(data)
    except UsageError as error:
        click.echo(f"note: {error}", err=True)


@flavor.command()
@click.argument("name", metavar="NAME", required=False)
@click.option("--json", "as_json", is_flag=True, help="JSON.")
def show(name: str | None, as_json: bool) -> None:
    """Show the flavor NAME (a name, a SHA-256 or an MD5); without one, list the shipped.

    What lies in a built tree says its MANIFEST; `stoilo flavor verify PATH` checks it.
    """
    from stoilo.flavors.build import flavor_level  # noqa: PLC0415 - loads the levels

    if name is None:
        _list_flavors(as_json=as_json)
        return
    found = find_flavor(name)
    document = _document(found) | {"level": flavor_level(found)}
    if as_json:
        click.echo(json.dumps(document))
        return
    for key, value in document.items():
        text = ", ".join(value) if isinstance(value, list) else value
        click.echo(f"{key:<13} {text}")


def _list_flavors(*, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([_document(one) for one in shipped_flavors()]))
        return
    for one in shipped_flavors():
        contents = ", ".join(one.requirements) or "the standard library only"
        click.echo(f"{one.name:<10} {one.digest[:16]}  Python {one.python}: {contents}")


def _document(one: FlavorManifest) -> dict[str, str | list[str]]:
    return {
        "name": one.name,
        "sha256": one.digest,
        "md5": one.alias,
        "python": one.python,
        "requirements": list(one.requirements),
        "modules": list(one.modules),
    }

"""`stoilo release publish|status`: a complete ceremony becomes the release; how it stands."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click
import msgspec

from stoilo.cli.release.ceremony_folder import FOLDER, clock, json_option
from stoilo.core.errors import TrustError, UsageError
from stoilo.core.plaintext import show_plainly
from stoilo.executor.verifier.installation import installed_release
from stoilo.executor.verifier.trust import load_trust
from stoilo.signer.ceremony.base_release import BaseRelease
from stoilo.signer.ceremony.change_words import render_time
from stoilo.signer.ceremony.folder import Ceremony, read_folder
from stoilo.signer.ceremony.key_holders import role_set
from stoilo.signer.ceremony.metadata import open_root
from stoilo.signer.ceremony.publication import publish as put
from stoilo.signer.ceremony.status import ReleaseState, read_state
from stoilo.signer.ceremony.transcript import append_line
from stoilo.signer.process.online_keys import find_key, renew_online_metadata


@click.command()
@click.argument("folder", type=FOLDER)
@click.option("--data", type=FOLDER, help="Data directory of the server.")
@click.option(
    "--release",
    "release_directory",
    type=FOLDER,
    help="A release directory that something else serves.",
)
@json_option
def publish(
    folder: Path, data: Path | None, release_directory: Path | None, *, as_json: bool
) -> None:
    """Put the complete ceremony in FOLDER in place, beside a running server too.

    Refuses what is not signed by enough people. Interrupted, it is finished by running
    it again. With --data the server's own keys sign snapshot and timestamp at once.
    """
    if (data is None) == (release_directory is None):
        raise UsageError(
            "STO-U003",
            "say where to: --data DIR or --release DIR",
            hint="--data is the data directory of `stoilo up`",
        )
    ceremony = read_folder(folder)
    now = clock()
    place = data / "keys" if data is not None else release_directory
    assert place is not None  # noqa: S101 - one of the two was given
    if data is not None:
        _refuse_foreign_keys(data, ceremony)
    current = put(ceremony, place, now, public=data is None)
    if os.access(folder, os.W_OK):  # the stick may be locked: its part is done
        append_line(folder, "publish", now, proposal=ceremony.digest)
    online = data is not None and _sign_online(place, now)
    _show(current, data, online=online, as_json=as_json)


def _refuse_foreign_keys(data: Path, ceremony: Ceremony) -> None:
    """Refuse a server without the key that will have to sign snapshot and timestamp.

    Published there, the release would be one that nobody can renew.
    """
    file = ceremony.proposal.newest("root")
    if file is None:
        return  # said by the publication itself
    wanted = role_set(open_root(file).signed, "timestamp").holders
    try:
        find_key(data / "keys", "online", {one.key for one in wanted})
    except TrustError as error:
        raise UsageError(
            "STO-K068",
            "this data directory does not hold the online key that the release names",
            hint="publish where `stoilo release online-keys --data DIR` was run",
        ) from error


def _sign_online(place: Path, now: int) -> bool:
    """Sign snapshot and timestamp with the server's own keys, where they lie here."""
    if not (place / "online").is_dir():
        return False
    renew_online_metadata(place, now)
    # A mistake shows here, not on every host at once.
    _verify_as_volunteer(place, now)
    return True


def _verify_as_volunteer(place: Path, now: int) -> None:
    """Raise what a volunteer would, before one does."""
    root = (place / "root.json").read_bytes()
    load_trust(place, root, now, installed=installed_release())


def _show(
    current: BaseRelease, data: Path | None, *, online: bool, as_json: bool
) -> None:
    versions = {
        file.role: file.version
        for file in (current.roots[-1], current.targets, *current.delegated)
    }
    if as_json:
        click.echo(
            json.dumps(
                {"published": True, "release": current.digest, "online": online}
                | {"versions": versions}
            )
        )
        return
    text = ", ".join(f"{role} {version}" for role, version in versions.items())
    click.echo(f"published: {text}")
    if online:
        click.echo("snapshot and timestamp are signed; a running server takes it over")
        click.echo(f"Next: stoilo release verify {data}")
    else:
        click.echo("Next: the server's keys sign snapshot and timestamp (stoilo up)")


@click.command()
@click.argument("directory", type=FOLDER)
@json_option
@click.pass_context
def status(context: click.Context, directory: Path, *, as_json: bool) -> None:
    """Show a release's roles: who holds them, which version, and what expires when.

    DIRECTORY is a release, or a server's data directory. Exit code 4: something has
    expired.
    """
    found = read_state(directory, clock())
    if as_json:
        click.echo(msgspec.json.encode(found).decode())
    else:
        _show_status(found)
    if found.state == "expired":
        context.exit(4)


def _show_status(found: ReleaseState) -> None:

    lines = [f"Release of {found.origin}: {found.state}"]
    for role in found.roles:
        lines.append(
            f"  {role.role} {role.version}: {role.state}, ends {render_time(role.expires)}"
        )
        if role.keys:
            names = ", ".join(f"{one.name} [{one.fingerprint}]" for one in role.keys)
            lines.append(f"    {role.threshold} of {len(role.keys)}: {names}")
    if found.epochs_until:
        lines.append(f"  gate epochs until {render_time(found.epochs_until)}")
    lines += [f"  {line}" for line in found.parts]
    lines += [f"Warning: {line}" for line in found.warnings]
    click.echo(show_plainly("\n".join(lines)))

"""`stoilo release sign|publish`: a ceremony signed by people, put in place."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import click

from stoilo.cli.keys import open_key_file, passphrase_option, type_back
from stoilo.cli.output import FILE, FOLDER, JSON, say
from stoilo.cli.output import now as clock
from stoilo.cli.release.ceremony_folder import (
    print_review,
    save,
)
from stoilo.cli.release.review import check_first_root, together
from stoilo.cli.release.vouching import attest, is_build, vouch
from stoilo.core.errors import TrustError, UsageError
from stoilo.core.files import write_durably
from stoilo.executor.verifier.installation import installed_release
from stoilo.executor.verifier.trust import load_trust
from stoilo.signer.ceremony.base_release import BaseRelease
from stoilo.signer.ceremony.boinc_files import sign_boinc_files
from stoilo.signer.ceremony.folder import Ceremony, read_folder
from stoilo.signer.ceremony.key_holders import role_set
from stoilo.signer.ceremony.key_memory import (
    check_memory,
    check_project,
    memory_file,
    read_memory,
    write_memory,
)
from stoilo.signer.ceremony.metadata import open_root
from stoilo.signer.ceremony.publication import publish as put
from stoilo.signer.ceremony.publication import refuse_problems
from stoilo.signer.ceremony.review import Review, next_step
from stoilo.signer.ceremony.review import review as review_ceremony
from stoilo.signer.ceremony.signatures import sign_proposal, signable
from stoilo.signer.ceremony.transcript import TRANSCRIPT_FILE, add_line
from stoilo.signer.offline_keys import (
    OfflineKey,
    fingerprint_digest,
    group_digest,
)
from stoilo.signer.process.online_keys import find_key, renew_online_metadata
from stoilo.signer.release_pack import read_release

MAX_CHANGES = 99


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="FOLDER|NEW.pub")
@click.option(
    "--key", "key_file", required=True, type=FILE, help="Your private key: one, yours."
)
@click.option("--root", "root_file", type=FILE, help="The first root, from elsewhere.")
@click.option(
    "--expect", metavar="DIGEST", help="Sign only the proposal of this digest."
)
@click.option(
    "--yes", is_flag=True, help="Do not ask: for rehearsals, or with --expect."
)
@click.option(
    "--memory", type=FILE, help="Where what this key signed is remembered; beside it."
)
@click.option(
    "--replace",
    "replaces",
    is_flag=True,
    help="An earlier ceremony of this version was abandoned.",
)
@click.option(
    "--output", type=FOLDER, help="Where other files than a ceremony's are written."
)
@click.option("--commit", default="", help="Of a build: its source's commit, hex.")
@click.option(
    "--number",
    type=click.IntRange(0, MAX_CHANGES),
    default=0,
    show_default=True,
    help="Of BOINC's next key: how many changes there were before this one.",
)
@passphrase_option
@JSON
def sign(
    folder: Path,
    key_file: Path,
    root_file: Path | None,
    expect: str | None,
    memory: Path | None,
    passphrase_fd: int | None,
    *,
    yes: bool,
    replaces: bool,
    output: Path | None,
    commit: str,
    number: int,
    as_json: bool,
) -> None:
    """Review the ceremony in FOLDER and add one key's signature to it.

    Shows the review first; nothing with a problem is signed. Then two groups of the
    proposal's digest are typed, read aloud by whoever proposed it from another screen.

    FOLDER may also be the output of `stoilo release build` or `stoilo flavor build`: a
    builder's key then says that its owner built these parts himself, from the source, on
    a machine of his own; builds/<part>/<platform>/<key>.json is written below --output.
    Or it is the public file of BOINC's next key: then the present one vouches for it, by
    files for the server's keys directory, which are written to --output.

    Example: stoilo release sign /media/stick --key /media/ada/ada.root.key

    Example: stoilo release sign dist --key bea.builder.key --output /media/stick
    """
    if folder.is_file():
        place = output or folder.parent
        vouch(folder, key_file, place, number, passphrase_fd, as_json=as_json)
        return
    if not (folder / "ceremony.json").exists() and is_build(folder):
        attest(folder, key_file, output, commit, passphrase_fd, as_json=as_json)
        return
    ceremony = read_folder(folder)
    found = review_ceremony(ceremony, clock())
    if root_file is not None:
        check_first_root(found.first_root, root_file)
    if not as_json:
        print_review(found, folder, as_json=False)
    refuse_problems(found)
    _confirm(found, expect, yes=yes)
    # Only now: nobody types a passphrase for what he would not sign.
    key = open_key_file(key_file, passphrase_fd)
    signed = _signed(ceremony, key, memory or memory_file(key_file), replaces=replaces)
    _save(folder, signed, key)
    after = review_ceremony(signed, clock())
    _show_signed(after, folder, key, as_json=as_json)


def _confirm(found: Review, expect: str | None, *, yes: bool) -> None:
    """Have the proposal's digest compared; raises ``STO-K069`` or ``STO-U003``."""
    if expect is not None:
        if "".join(expect.split()).lower() != found.digest:
            raise TrustError(
                "STO-K069", f"the folder holds proposal {found.digest}, not that one"
            )
        return
    if yes:
        # Nothing of a rehearsal counts for volunteers.
        if found.rehearsal:
            return
        raise UsageError(
            "STO-U003",
            "--yes is for rehearsals",
            hint="give --expect DIGEST, read from another screen",
        )
    type_back(
        group_digest(found.digest),
        "From the proposer's screen, as read to you, the proposal's",
    )


def _signed(
    ceremony: Ceremony, key: OfflineKey, memory: Path, *, replaces: bool
) -> Ceremony:
    """Return the ceremony with one key's signatures, remembered before they are given."""
    if key.role == "boinc":
        return sign_boinc_files(ceremony, key.boinc())
    signed = replace(ceremony, proposal=sign_proposal(ceremony.proposal, key))
    keyid = key.signer().public_key.keyid
    known = read_memory(memory, keyid, key.role)
    known = check_project(known, ceremony.proposal, replace=replaces)
    for file in signable(ceremony.proposal, key.role, keyid):
        known = check_memory(known, file, replace=replaces)
    # Durable before the signature leaves: else a crash forgets what was signed.
    write_memory(memory, known)
    return signed


def _save(folder: Path, ceremony: Ceremony, key: OfflineKey) -> None:

    who = f"{key.name} ({key.role})"
    save(folder, ceremony, "sign", who=who, key=fingerprint_digest(key.public))


def _show_signed(
    found: Review, folder: Path, key: OfflineKey, *, as_json: bool
) -> None:

    if as_json:
        print_review(found, folder, as_json=True)
        return
    said = f"\nsigned by {key.name} ({key.role})\nNext: {next_step(found, str(folder))}"
    say(found, said, as_json=False)


@click.command()
@click.argument("folders", type=FOLDER, nargs=-1, required=True)
@click.option("--data", type=FOLDER, help="Data directory of the server.")
@click.option(
    "--release",
    "release_directory",
    type=FOLDER,
    help="A release directory that something else serves.",
)
@JSON
def publish(
    folders: tuple[Path, ...],
    data: Path | None,
    release_directory: Path | None,
    *,
    as_json: bool,
) -> None:
    """Put the complete ceremony in FOLDERS in place, beside a running server too.

    FOLDERS are one folder, or copies of it that several people have signed apart. Refuses
    what is not signed by enough people. Interrupted, it is finished by running it again.
    With --data the server's own keys sign snapshot and timestamp at once.
    """
    if (data is None) == (release_directory is None):
        raise UsageError(
            "STO-U003",
            "say where to: --data DIR or --release DIR",
            hint="--data is the data directory of `stoilo up`",
        )
    ceremony, now = together(folders), clock()
    place = data / "keys" if data is not None else release_directory
    assert place is not None  # noqa: S101 - one of the two was given
    if data is not None:
        _refuse_foreign_keys(data, ceremony)
    current = put(ceremony, place, now, public=data is None)
    if os.access(folders[0], os.W_OK):  # the stick may be locked: its part is done
        line = add_line(ceremony.transcript, "publish", now, proposal=ceremony.digest)
        write_durably(folders[0] / TRANSCRIPT_FILE, line, mode=None)
    online = data is not None and (place / "online").is_dir()
    if online:
        renew_online_metadata(place, now)
        # As a volunteer would: a mistake shows here, not on every host at once.
        root = (place / "root.json").read_bytes()
        load_trust(read_release(place), root, now, installed=installed_release())
    _show_published(current, data, online=online, as_json=as_json)


def _refuse_foreign_keys(data: Path, ceremony: Ceremony) -> None:
    """Refuse a server without the key that will have to sign snapshot and timestamp."""
    # Published there, the release would be one that nobody can renew.
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


def _show_published(
    current: BaseRelease, data: Path | None, *, online: bool, as_json: bool
) -> None:
    versions = {
        file.role: file.version
        for file in (current.roots[-1], current.targets, *current.delegated)
    }
    text = ", ".join(f"{role} {version}" for role, version in versions.items())
    if online:
        done = "snapshot and timestamp are signed; a running server takes it over"
        then = f"{done}\nNext: stoilo release verify {data}"
    else:
        then = "Next: the server's keys sign snapshot and timestamp (stoilo up)"
    record = {"published": True, "release": current.digest, "online": online}
    say(record | {"versions": versions}, f"published: {text}\n{then}", as_json=as_json)

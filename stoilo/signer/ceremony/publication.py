"""A complete ceremony into a release directory: whole or not at all.

Files come before the metadata that names them, the root before what it certifies; snapshot
and timestamp are the server's own keys' to sign and come last, so that a reader meets the
old release or the new one. A publication that was interrupted is finished by running it
again: nothing that is there is ever changed, and anything else than this very release in
its place refuses.

    DIR/root.json                the first root: what volunteers take as --root FILE
    DIR/metadata, DIR/targets    the release
    DIR/builds, DIR/boinc        builders' attestations, BOINC's signatures
    DIR/transcript.jsonl         who did what in the last ceremony

Trust: the folder is hostile; `review` decides. The directory is this machine's own.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stoilo.core.errors import InternalError, TrustError
from stoilo.signer.ceremony.base_release import BaseRelease, open_published
from stoilo.signer.ceremony.boinc_files import (
    BOINC_FOLDER,
    BOINC_KEY_FILE,
    check_folder_signatures,
    is_boinc_file,
    is_key_change,
    missing_boinc_files,
    signature_name,
)
from stoilo.signer.ceremony.content_checks import named_targets, release_parts
from stoilo.signer.ceremony.folder import Ceremony
from stoilo.signer.ceremony.metadata import RoleFile, parse_role_name
from stoilo.signer.ceremony.review import Review, review
from stoilo.signer.ceremony.transcript import parse_transcript
from stoilo.signer.repository import DirectoryWriter, release_writer
from stoilo.signer.roles import OFFLINE


def publish(
    ceremony: Ceremony, directory: Path, now: int, *, public: bool = False
) -> BaseRelease:
    """Write a complete ceremony's release into `directory`.

    Args:
        ceremony: as read from its folder.
        directory: the release's; made when it is the first one.
        now: Unix seconds.
        public: files may be read by every user of this machine (a copy to be served by
            others); a server's own are its alone.

    Returns:
        The release as it is now, its offline roles verified from the first root on.

    Raises:
        TrustError: the first problem's code; ``STO-K068`` when signatures are missing,
            BOINC's too where the release has some; ``STO-K076`` when BOINC's are others;
            ``STO-K052`` when the directory holds another release than the ceremony
            builds on.
        InternalError: ``STO-K068`` when the disk is full or read-only: run it again.
    """
    refuse_incomplete(review(ceremony, now), ceremony)
    files = release_writer(directory, public=public)
    try:
        with _locked(directory, 0o755 if public else 0o700):
            # Under the lock: another publication may just have ended.
            _check_place(ceremony, directory)
            write_release(ceremony, files)
    except OSError as error:
        raise InternalError(
            "STO-K068",
            f"the release is not published whole: {os.strerror(error.errno or 0)}",
            hint="make room, then publish again: what is there is finished",
        ) from error
    return open_published(directory)


def refuse_problems(found: Review) -> None:
    """Raise the first problem: what has one is signed by nobody and not published."""
    if found.problems:
        first = found.problems[0]
        raise TrustError(first.code, first.message, hint=first.hint)


def refuse_incomplete(found: Review, ceremony: Ceremony) -> None:
    """Raise unless everything is right and signed; see `publish`."""
    refuse_problems(found)
    for role in found.roles:
        for quorum in role.quorums:
            if not quorum.met:
                names = ", ".join(one.name for one in quorum.missing)
                lacking = quorum.threshold - len(quorum.signed)
                raise TrustError(
                    "STO-K068",
                    f"{role.file} lacks {lacking} signature(s) of the {quorum.standing} "
                    f"keys",
                    hint=f"one of these signs: {names}",
                )
    missing = missing_boinc_files(ceremony)
    if ceremony.boinc and missing:
        raise _without_boinc(missing)
    check_folder_signatures(ceremony)
    if ceremony.transcript:
        parse_transcript(ceremony.transcript)  # published with the rest, and checked


def _without_boinc(missing: tuple[str, ...]) -> TrustError:
    return TrustError(
        "STO-K068",
        f"BOINC's key has not signed {', '.join(missing)}",
        hint="its holder signs the folder too: stoilo release sign FOLDER --key KEY",
    )


@contextmanager
def _locked(directory: Path, mode: int) -> Iterator[None]:
    directory.mkdir(mode=mode, parents=True, exist_ok=True)
    locks = [os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
    if (
        directory / "state"
    ).is_dir():  # a server's own lock, see `repository.publishing`
        lock = directory / "state" / "publishing"
        locks.append(os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    try:
        for descriptor in locks:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        for descriptor in locks:
            os.close(descriptor)


def _check_place(ceremony: Ceremony, directory: Path) -> None:
    """Refuse a directory that holds anything but the base, or this very release."""
    proposal = ceremony.proposal
    missing = missing_boinc_files(ceremony)
    if missing and (directory / BOINC_FOLDER / BOINC_KEY_FILE).exists():
        raise _without_boinc(missing)  # signatures of other files would stay
    there = _published(directory)
    for role in OFFLINE:
        base = None if proposal.base is None else proposal.base.role(role)
        new = proposal.role(role)
        newest = max((file.version for file in there if file.role == role), default=0)
        allowed = {file.version: file for file in (base, new) if file is not None}
        # Anything else means that somebody published meanwhile.
        if newest and newest not in allowed:
            raise _moved_on(role, newest)
        if base is not None and base not in there:
            raise _moved_on(role, newest)
        if new is not None and newest == new.version and new not in there:
            raise _moved_on(role, newest)


def _moved_on(role: str, version: int) -> TrustError:
    return TrustError(
        "STO-K052",
        f"the directory holds version {version} of {role}, not the release that this "
        "ceremony builds on",
        hint="make a new request on the release that is there",
    )


def _published(directory: Path) -> tuple[RoleFile, ...]:
    found = []
    for path in (directory / "metadata").glob("*.json"):
        parsed = parse_role_name(path.name)
        if parsed is not None:
            found.append(RoleFile(parsed[1], parsed[0], path.read_bytes()))
    return tuple(found)


def write_release(ceremony: Ceremony, files: DirectoryWriter) -> None:
    """Write what a signed ceremony publishes; whoever calls has checked the signatures."""
    proposal = ceremony.proposal
    # Files first: metadata that names a missing file would stop every reader.
    for one in proposal.targets:
        files.write(f"targets/{one.stored}", one.content)
    for role in OFFLINE:
        file = proposal.role(role)
        if file is not None:
            files.write(f"metadata/{file.name}", file.data)
    if proposal.base is None:
        root = proposal.role("root")
        assert root is not None  # noqa: S101 - a complete first release has one
        files.write("root.json", root.data)
    _write_evidence(ceremony, files)


def _write_evidence(ceremony: Ceremony, files: DirectoryWriter) -> None:
    """Publish attestations, BOINC's signatures and the transcript; drop what is over."""
    named = named_targets(ceremony.proposal)
    signatures = {
        f"boinc/{signature_name(name)}" for name in named if is_boinc_file(name)
    }
    for name, data in ceremony.boinc:
        files.write(f"boinc/{name}", data)
    changes = {name for name in files.below("boinc") if is_key_change(name)}
    kept = {*signatures, *changes, "boinc/key.pub"}
    parts = {(part.part, part.platform) for part in release_parts(ceremony.proposal)}
    given = {f"builds/{name}" for name, _ in ceremony.builds}
    # A part attested again replaces all attestations of its earlier build.
    anew = {tuple(name.split("/")[1:3]) for name in given}
    for name, data in ceremony.builds:
        files.write(f"builds/{name}", data)
    for name in files.below("builds"):
        row = tuple(name.split("/")[1:3])
        if name in given or (row in parts and row not in anew):
            kept.add(name)
    for name in (*files.below("builds"), *files.below("boinc")):
        if name not in kept:
            files.remove(name)
    if ceremony.transcript:
        files.write("transcript.jsonl", ceremony.transcript)

"""Is this the program that the project published, and did everybody see that release?

A volunteer's own launcher and verifier, by digest, against the release that the project's
offline keys signed, and that release against the project's log: a program made for one
victim would stand in neither. `check_self` is pure; what it compares is read by who calls.
"""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stoilo.audit.format.release_proof import (
    RELEASE_PROOF_FILE,
    RELEASE_RECORD_FILE,
    LoggedRelease,
    check_release_proof,
)
from stoilo.core.digests import Digest
from stoilo.core.errors import TrustError
from stoilo.core.limits import BOUNDS
from stoilo.core.plaintext import show_plainly
from stoilo.flavors.tree import MANIFEST_NAME, tree_digest

if TYPE_CHECKING:
    from stoilo.executor.release import PartFile, TrustedRelease

__all__ = [
    "Finding",
    "OwnParts",
    "SelfCheck",
    "check_self",
    "hash_own_tree",
    "hash_program",
    "prove_release",
    "read_logged",
    "render_check",
]

MAX_PROGRAM_BYTES: Final = 512 * 1024 * 1024
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class OwnParts:
    """What this computer runs.

    Attributes:
        platform: for example ``x86_64-linux``.
        launcher: SHA-256 of the launcher's file; None when it is not known.
        verifier: digest of the verifier's tree, hashed again; None when not known.
        serial: that both say of themselves; 0 when not known.
    """

    platform: str
    launcher: Digest | None
    verifier: Digest | None
    serial: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """One comparison that held: part, its release, its digest."""

    part: str
    version: str
    serial: int
    digest: str


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """What held.

    Attributes:
        origin: the project.
        development: whether its root is one of development.
        findings: the parts compared.
        entry: place in the log of the record that names the same parts; None when no
            proof was at hand.
        size: leaves of that log.
        witnessed: newest cosignature, Unix seconds; None without witnesses.
        rehearsal: whether its root is one of a rehearsal.
    """

    origin: str
    development: bool
    findings: tuple[Finding, ...]
    entry: int | None = None
    size: int = 0
    witnessed: int | None = None
    rehearsal: bool = False


def check_self(
    trust: TrustedRelease, own: OwnParts, logged: LoggedRelease | None
) -> SelfCheck:
    """Compare what runs here with what was published, and that with the log. Pure.

    Raises:
        TrustError: STO-F045 another program, STO-F046 the release names none for this
            computer or a newer one, STO-F047 the log tells of other parts.
    """
    findings = tuple(
        _compare(trust, name, own, found)
        for name, found in (("launcher", own.launcher), ("verifier", own.verifier))
        if found is not None
    )
    if not findings:
        raise _nothing("neither launcher nor verifier of this computer is known")
    if logged is None:
        return SelfCheck(
            trust.origin, trust.development, findings, rehearsal=trust.rehearsal
        )
    told = {(one.name, one.digest) for one in logged.record.parts}
    for finding in findings:
        part = trust.part(finding.part, own.platform)
        name = f"{finding.part}/{own.platform}"
        if part is None or (name, part.archive.sha256) not in told:
            raise TrustError("STO-F047", f"the log tells of another {finding.part}")
    proven = logged.proven
    return SelfCheck(
        trust.origin,
        trust.development,
        findings,
        proven.index,
        proven.size,
        proven.checkpoint_time,
        trust.rehearsal,
    )


def render_check(check: SelfCheck) -> str:
    """Return the findings for a person."""
    lines = [
        f"{one.part} is release {one.serial} ({one.version}) of {check.origin}: {one.digest}"
        for one in check.findings
    ]
    if check.entry is None:
        lines.append(
            "not compared with the project's log: no proof of it was at hand "
            "(stoilo volunteer self-check --project URL fetches it)"
        )
    else:
        by = "witnessed" if check.witnessed else "without independent witnesses"
        lines.append(f"in the log, entry {check.entry} of {check.size}, {by}")
    if check.development:
        lines.append("the root is one of DEVELOPMENT: its keys lie on the server")
    if check.rehearsal:
        lines.append("the root is one of a REHEARSAL: it is not the project itself")
    return "".join(f"{show_plainly(' '.join(line.split()))}\n" for line in lines)


def hash_program(path: Path) -> Digest:
    """Return the SHA-256 of a program's file; raises ``STO-F046`` if it cannot be read."""
    state, left = hashlib.sha256(), MAX_PROGRAM_BYTES
    try:
        with os.fdopen(os.open(path, _FLAGS), "rb") as file:
            while left and (chunk := file.read(min(1 << 20, left))):
                state.update(chunk)
                left -= len(chunk)
    except OSError as error:
        raise _nothing(f"{path.name} cannot be read") from error
    return Digest(state.hexdigest())


def hash_own_tree(directory: Path) -> Digest:
    """Return the digest of the tree in `directory`, every file of it hashed again.

    Raises:
        TrustError: STO-F041 it is not what its own list says, STO-F046 there is none.
    """
    from stoilo.executor.trees import check_tree  # noqa: PLC0415 - seldom

    try:
        with (directory / MANIFEST_NAME).open("rb") as file:
            digest = tree_digest(file.read(BOUNDS.metadata_bytes * 32 + 1))
    except OSError as error:
        raise _nothing("the verifier's list of files cannot be read") from error
    check_tree(directory, digest)
    return digest


def read_logged(directory: Path, trust: TrustedRelease) -> LoggedRelease | None:
    """Return what the proof in `directory` proves; None when there is none.

    Raises:
        TrustError: STO-F047 it proves nothing.
    """
    try:
        record = _read(directory / RELEASE_RECORD_FILE)
        proof = _read(directory / RELEASE_PROOF_FILE)
    except FileNotFoundError:
        return None
    return prove_release(record, proof, trust)


def prove_release(record: bytes, proof: bytes, trust: TrustedRelease) -> LoggedRelease:
    """Return what hostile `proof` proves under the release's log policy; STO-F047."""
    try:
        return check_release_proof(record, proof, trust.log_policy)
    except TrustError as error:
        raise TrustError(
            "STO-F047", f"the log's proof of the release does not hold: {error.message}"
        ) from error


def _compare(trust: TrustedRelease, name: str, own: OwnParts, found: Digest) -> Finding:
    """Return the finding about one part, or refuse."""
    part = trust.part(name, own.platform)
    if part is None:
        raise _nothing(f"the release names no {name} for {own.platform}")
    published = part.archive.sha256 if name == "launcher" else part.tree
    if found == published:
        return Finding(name, part.version, part.serial, found)
    if _is_older(part, own, trust):
        raise _nothing(
            f"release {part.serial} is published and release {own.serial} runs here; "
            "let BOINC fetch the newest, then check again"
        )
    raise TrustError(
        "STO-F045",
        f"the {name} here is {found}, published is {published}",
        hint="stop the project on this computer, keep the file, tell an auditor",
    )


def _is_older(part: PartFile, own: OwnParts, trust: TrustedRelease) -> bool:
    """Whether launcher and verifier here say that they are of a release before `part`.

    The two are built together: who holds the published verifier is no older launcher.
    """
    published = trust.part("verifier", own.platform)
    same = published is not None and own.verifier == published.tree
    return 0 < own.serial < part.serial and not same


def _read(path: Path) -> bytes:
    """Return a small plain file; what is longer than a proof may be does not parse.

    Raises:
        FileNotFoundError: there is none.
        TrustError: STO-F047 something else has its name: a slot holds what a server sent.
    """
    try:
        descriptor = os.open(path, _FLAGS | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _no_proof(path) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _no_proof(path)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(BOUNDS.metadata_bytes)


def _no_proof(path: Path) -> TrustError:
    """Return ``STO-F047`` about what is no plain file."""
    return TrustError("STO-F047", f"{path.name} is no plain file and proves nothing")


def _nothing(reason: str) -> TrustError:
    """Return ``STO-F046``."""
    return TrustError(
        "STO-F046",
        f"there is nothing to compare with: {reason}",
        hint="let a task run first, or: stoilo volunteer self-check --project URL",
    )

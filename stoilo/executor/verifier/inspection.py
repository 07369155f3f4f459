"""What a verifier tells a person instead of running a task.

``--explain`` says in plain words what a task is; everything said has been verified before,
and what a stranger chose (names, topics) is shown so that it commands no terminal.
``--self-check`` compares a volunteer's own launcher and verifier, by digest, with the release
that the project published and its log names.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from stoilo.audit.format.proof import ProvenLeaf
from stoilo.audit.format.records import (
    RELEASE_PROOF_FILE,
    RELEASE_RECORD_FILE,
    LoggedRelease,
    check_release_proof,
)
from stoilo.core.digests import Digest, content_digest
from stoilo.core.errors import PolicyRefusal, StoiloError, TrustError, show_plainly
from stoilo.core.files import read_bounded
from stoilo.core.frozen_tree import MANIFEST_BYTES, MANIFEST_NAME, tree_digest
from stoilo.core.types import BOUNDS, RunLimits
from stoilo.executor.verifier.targets import PartFile, TrustedRelease
from stoilo.executor.verifier.trees import check_tree
from stoilo.executor.verifier.workunit import HostState, VerifiedTask

MIB = 1024 * 1024
_WIDTH = 10


def explain_task(
    task: VerifiedTask, trust: TrustedRelease, host: HostState, part: PartFile | None
) -> str:
    """Return what the task is, for whom, under which level, and what proves it.

    `task`: verified.
    `part`: the frozen runtime; None for what is installed.
    """
    statement = task.admission.statement
    rows = [
        (
            "what",
            f"function {statement.entry!r} of the source {_short(statement.task_module)}",
        ),
        ("", _size_words(task)),
        ("for whom", f"project {trust.origin}, account {_short(statement.submitter)}"),
        ("", f"task {statement.task_id}, attempt {statement.attempt}"),
        ("topics", ", ".join(statement.topics) or "none said"),
        ("source", "may be published" if statement.public_source else "not published"),
        ("level", f"{task.level.name}: {task.level.summary or 'no summary'}"),
        ("", f"you allow {host.max_level} at most"),
        ("runtime", _runtime_words(part)),
        ("limits", _limits_words(task.limits)),
        ("valid", f"from {_day(statement.admitted_at)} to {_day(statement.not_after)}"),
        ("review", _review_words(statement.reviewers, trust, task)),
        ("proof", f"signed by the gate's keys of epoch {statement.epoch}"),
        ("", _release_words(trust)),
        ("", _log_words(task.admission.proven)),
        ("cannot", "open files, reach the network, start processes, see your data"),
    ]
    return f"This computer may run the task.\n{_table(rows)}"


def explain_refusal(error: StoiloError) -> str:
    """Return why this computer does not run a task, and what would help."""
    kind = (
        "This computer does not take the task; nobody is to blame."
        if isinstance(error, PolicyRefusal)
        else "This computer refuses the task."
    )
    rows = [
        ("why", f"{error.message} [{error.code}]"),
        ("help", error.hint or f"stoilo explain {error.code}"),
    ]
    return f"{kind}\n{_table(rows)}"


def _size_words(task: VerifiedTask) -> str:
    blobs = sum(len(blob) for blob in task.blobs)
    return (
        f"{len(task.task_module):,} bytes of source, {len(task.arguments):,} of "
        f"arguments, {blobs:,} in {len(task.blobs)} data files"
    )


def _runtime_words(part: PartFile | None) -> str:
    if part is None:
        return "the libraries installed here"
    return (
        f"{part.part} {part.version}, release {part.serial}, tree {_short(part.tree)}"
    )


def _limits_words(limits: RunLimits) -> str:
    threads = "1 thread" if limits.threads == 1 else f"{limits.threads} threads"
    return (
        f"{limits.cpu_s} s of processor, {limits.wall_s} s in all, "
        f"{limits.memory_bytes // MIB:,} MiB of memory, {threads}"
    )


def _review_words(
    reviews: tuple[str, ...], trust: TrustedRelease, task: VerifiedTask
) -> str:
    if reviews:
        return f"signed by {len(reviews)} of the project's reviewers"
    policy = task.admission.statement.policy_digest
    asked = trust.needs_review(policy, task.level.name)
    return "demanded and missing" if asked else "by nobody; the policy asks for none"


def _release_words(trust: TrustedRelease) -> str:
    kind = (
        " of DEVELOPMENT: its offline keys lie on the server"
        if trust.development
        else ""
    )
    kind += " of a REHEARSAL" if trust.rehearsal else ""
    return (
        f"certified by root {trust.root_version}, targets {trust.targets_version}{kind}"
    )


def _log_words(proven: ProvenLeaf) -> str:
    place = f"entry {proven.index} of {proven.size} in the project's log"
    if proven.checkpoint_time is None:
        return f"{place}; no independent witness"
    return f"{place}; witnessed {_day(proven.checkpoint_time)}"


def _table(rows: list[tuple[str, str]]) -> str:
    """Return rows as lines; what comes from others is shown plainly."""
    return "".join(
        f"  {name:<{_WIDTH}}{show_plainly(' '.join(text.split()))}\n"
        for name, text in rows
    )


def _short(digest: str) -> str:
    """Return the first half of a digest's first half: enough to compare by eye."""
    return f"{digest[:16]}…"


def _day(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


MAX_PROGRAM_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class OwnParts:
    """What this computer runs."""

    platform: str  # for example ``x86_64-linux``
    launcher: Digest | None  # SHA-256 of the launcher's file; None when it is not known
    # digest of the verifier's tree, hashed again; None when not known
    verifier: Digest | None
    serial: int = 0  # that both say of themselves; 0 when not known


class Finding(msgspec.Struct, frozen=True):
    """One comparison that held: part, its release, its digest."""

    part: str
    version: str
    serial: int
    digest: str


class LogPlace(msgspec.Struct, frozen=True):
    """Where the log names the same parts."""

    entry: int
    size: int  # leaves of that log
    witnessed: int | None  # newest cosignature, Unix seconds; None without witnesses


class SelfCheck(msgspec.Struct, frozen=True):
    """What held."""

    origin: str  # the project
    development: bool  # whether its root is one of development
    rehearsal: bool  # whether it is one of a rehearsal
    parts: tuple[Finding, ...]  # the parts compared
    log: LogPlace | None  # None when no proof was at hand


def check_self(
    trust: TrustedRelease, own: OwnParts, logged: LoggedRelease | None
) -> SelfCheck:
    """Compare what runs here with what was published, and that with the log. Pure.

    Raises:
        TrustError: STO-F045 another program, STO-F046 the release names none for this
            computer or a newer one, STO-F045 the log tells of other parts.
    """
    findings = tuple(
        _compare(trust, name, own, found)
        for name, found in (("launcher", own.launcher), ("verifier", own.verifier))
        if found is not None
    )
    if not findings:
        raise _nothing("neither launcher nor verifier of this computer is known")
    place = None if logged is None else _place(trust, own, findings, logged)
    return SelfCheck(trust.origin, trust.development, trust.rehearsal, findings, place)


def _place(
    trust: TrustedRelease,
    own: OwnParts,
    findings: tuple[Finding, ...],
    logged: LoggedRelease,
) -> LogPlace:
    """Return where the log tells of the same parts; raises ``STO-F045``."""
    told = {(one.name, one.digest) for one in logged.record.parts}
    for finding in findings:
        part = trust.part(finding.part, own.platform)
        name = f"{finding.part}/{own.platform}"
        if part is None or (name, part.archive.sha256) not in told:
            raise TrustError("STO-F045", f"the log tells of another {finding.part}")
    proven = logged.proven
    return LogPlace(proven.index, proven.size, proven.checkpoint_time)


def render_check(check: SelfCheck) -> str:
    """Return the findings for a person."""
    lines = [
        f"{one.part} is release {one.serial} ({one.version}) of {check.origin}: {one.digest}"
        for one in check.parts
    ]
    if check.log is None:
        lines.append(
            "not compared with the project's log: no proof of it was at hand "
            "(stoilo volunteer self-check --project URL fetches it)"
        )
    else:
        by = "witnessed" if check.log.witnessed else "without independent witnesses"
        lines.append(f"in the log, entry {check.log.entry} of {check.log.size}, {by}")
    if check.development:
        lines.append("the root is one of DEVELOPMENT: its keys lie on the server")
    if check.rehearsal:
        lines.append("the root is one of a REHEARSAL: it is not the project itself")
    return "".join(f"{show_plainly(' '.join(line.split()))}\n" for line in lines)


def hash_program(path: Path) -> Digest:
    """Return the SHA-256 of a program's file; raises ``STO-F046`` if it cannot be read."""
    try:
        return content_digest(read_bounded(path.resolve(), MAX_PROGRAM_BYTES))
    except OSError as error:
        raise _nothing(f"{path.name} cannot be read") from error


def hash_own_tree(directory: Path) -> Digest:
    """Return the digest of the tree in `directory`, every file of it hashed again.

    Raises:
        TrustError: STO-F006 it is not what its own list says, STO-F046 there is none.
    """
    try:
        digest = tree_digest(read_bounded(directory / MANIFEST_NAME, MANIFEST_BYTES))
    except OSError as error:
        raise _nothing("the verifier's list of files cannot be read") from error
    check_tree(directory, digest)
    return digest


def read_logged(directory: Path, trust: TrustedRelease) -> LoggedRelease | None:
    """Return what the proof in `directory` proves; None when there is none.

    Raises:
        TrustError: STO-F045 it proves nothing.
    """
    try:
        record = _read(directory / RELEASE_RECORD_FILE)
        proof = _read(directory / RELEASE_PROOF_FILE)
    except FileNotFoundError:
        return None
    return prove_release(record, proof, trust)


def prove_release(record: bytes, proof: bytes, trust: TrustedRelease) -> LoggedRelease:
    """Return what hostile `proof` proves under the release's log policy; STO-F045."""
    try:
        return check_release_proof(record, proof, trust.log_policy)
    except TrustError as error:
        raise TrustError(
            "STO-F045", f"the log's proof of the release does not hold: {error.message}"
        ) from error


def _compare(trust: TrustedRelease, name: str, own: OwnParts, found: Digest) -> Finding:
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
    """Return a small plain file; a slot holds what a server sent.

    Raises:
        FileNotFoundError: there is none.
        TrustError: STO-F045 something else has its name.
    """
    try:
        return read_bounded(path, BOUNDS.metadata_bytes)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise TrustError(
            "STO-F045", f"{path.name} is no plain file and proves nothing"
        ) from error


def _nothing(reason: str) -> TrustError:
    return TrustError(
        "STO-F046",
        f"there is nothing to compare with: {reason}",
        hint="let a task run first, or: stoilo volunteer self-check --project URL",
    )

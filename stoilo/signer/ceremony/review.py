"""What a ceremony changes, who has signed, who is missing, and what is wrong: pure.

This is what a person looks at before signing, and what `sign` and `publish` obey: a review
with problems is signed by nobody, one with missing signatures is not published.

Trust: names and notes come from other people's files; in text, control characters and ends
of lines are spelled out. Who joins a role is shown with the whole fingerprint: keys whose
first digits are those on somebody's paper can be had by trying.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from tuf.api.metadata import Root, TargetFile, Targets

from stoilo.core.errors import StoiloError
from stoilo.executor.verifier.targets import RevocationFile
from stoilo.executor.verifier.trust import BUILDERS_FILE
from stoilo.signer.attestations import BuildEvidence
from stoilo.signer.ceremony.boinc_files import missing_boinc_files
from stoilo.signer.ceremony.change_words import describe_target, render_time, show_line
from stoilo.signer.ceremony.checks import (
    check_ceremony,
    check_pairs,
    find_builds,
)
from stoilo.signer.ceremony.content_checks import admits_until
from stoilo.signer.ceremony.folder import Ceremony
from stoilo.signer.ceremony.key_holders import (
    ONLINE_ROLES,
    Person,
    RoleSet,
    role_set,
)
from stoilo.signer.ceremony.lists import read_list
from stoilo.signer.ceremony.metadata import RoleFile, open_role, targets_of
from stoilo.signer.ceremony.proposal import Proposal
from stoilo.signer.ceremony.signatures import Quorum, quorums
from stoilo.signer.offline_keys import group_digest
from stoilo.signer.roles import DELEGATED, OFFLINE, expiries


class Problem(msgspec.Struct, frozen=True):
    """Why nobody may sign this."""

    code: str
    message: str
    hint: str


class KeyChange(msgspec.Struct, frozen=True):
    """What changes in a role's keys."""

    role: str
    joined: tuple[Person, ...]
    left: tuple[Person, ...]
    old_threshold: int
    new_threshold: int
    keys: int


class TargetChange(msgspec.Struct, frozen=True):
    """One file that becomes another; digests are SHA-256, empty for none."""

    name: str
    old: str
    new: str
    size: int
    words: tuple[str, ...]


class RoleReview(msgspec.Struct, frozen=True):
    """One metadata file to sign; times in Unix seconds."""

    role: str
    file: str
    old_version: int
    new_version: int
    expires: int
    quorums: tuple[Quorum, ...]
    keys: tuple[KeyChange, ...]
    targets: tuple[TargetChange, ...]

    @property
    def is_met(self) -> bool:
        """Whether enough people have signed."""
        return all(one.met for one in self.quorums) and bool(self.quorums)


class Review(msgspec.Struct, frozen=True):
    """Everything to know before signing."""

    digest: str  # of the proposal: what is signed, and compared between screens
    origin: str
    rehearsal: bool
    note: str
    created: int
    now: int
    base: str
    first_root: str  # SHA-256 of the first root's file, empty while it is being signed
    roles: tuple[RoleReview, ...]
    builds: tuple[BuildEvidence, ...]
    problems: tuple[Problem, ...]  # why nobody may sign; empty is good
    warnings: tuple[str, ...]  # what deserves a second look
    complete: bool  # whether the release's roles have signed it
    # targets that BOINC's key has still to sign; a project whose release has BOINC
    # signatures already cannot be published without
    boinc_unsigned: tuple[str, ...] = ()


def review(ceremony: Ceremony, now: int) -> Review:
    """Return what `ceremony` changes and what stands in its way.

    Args:
        ceremony: as read; hostile in everything but the bounds of its files.
        now: Unix seconds, by this machine's clock.

    Raises:
        TrustError: when metadata or keys cannot be read at all.
    """
    proposal = ceremony.proposal
    roles = tuple(_role_review(proposal, file) for file in proposal.metadata)
    builds, found = find_builds(ceremony)
    against = (*check_ceremony(ceremony, now), *found, *check_pairs(ceremony))
    problems = tuple(Problem(one.code, one.message, one.hint) for one in against)
    about = ceremony.about
    return Review(
        digest=ceremony.digest,
        origin=about.origin,
        rehearsal=about.rehearsal,
        note=about.note,
        created=about.created,
        now=now,
        base=about.base,
        first_root=_first_root(proposal),
        roles=roles,
        builds=builds,
        problems=problems,
        warnings=tuple(_warnings(ceremony, roles, now, found_builds=bool(builds))),
        complete=not problems and bool(roles) and all(one.is_met for one in roles),
        boinc_unsigned=missing_boinc_files(ceremony),
    )


def _first_root(proposal: Proposal) -> str:
    if proposal.base is None:
        return ""
    return proposal.base.roots[0].signed_digest


def _role_review(proposal: Proposal, file: RoleFile) -> RoleReview:
    known = None if proposal.base is None else proposal.base.role(file.role)
    signed = open_role(file).signed
    return RoleReview(
        role=file.role,
        file=file.name,
        old_version=0 if known is None else known.version,
        new_version=file.version,
        expires=int(signed.expires.timestamp()),
        quorums=quorums(proposal, file),
        keys=tuple(
            _key_changes(
                file.role, None if known is None else open_role(known).signed, signed
            )
        ),
        targets=tuple(_target_changes(proposal, file, known)),
    )


def _key_changes(
    role: str, old: Root | Targets | None, new: Root | Targets
) -> Iterator[KeyChange]:
    roles = {"root": ("root", "targets", *ONLINE_ROLES), "targets": DELEGATED}
    for name in roles.get(role, ()):
        before = RoleSet((), 0) if old is None else role_set(old, name)
        after = role_set(new, name)
        known = {one.key.raw for one in before.holders}
        kept = {one.key.raw for one in after.holders}
        if known != kept or before.threshold != after.threshold:
            yield KeyChange(
                role=name,
                joined=tuple(
                    one.person for one in after.holders if one.key.raw not in known
                ),
                left=tuple(
                    one.person for one in before.holders if one.key.raw not in kept
                ),
                old_threshold=before.threshold,
                new_threshold=after.threshold,
                keys=len(kept),
            )


def _target_changes(
    proposal: Proposal, file: RoleFile, known: RoleFile | None
) -> Iterator[TargetChange]:
    if file.role == "root":
        return
    before = {} if known is None else targets_of(known)
    after = targets_of(file)
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old != new:
            yield TargetChange(
                name=name,
                old=_digest(old),
                new=_digest(new),
                size=0 if new is None else new.length,
                words=_words(proposal, name, old, new),
            )


def _digest(info: TargetFile | None) -> str:
    return "" if info is None else str(info.hashes.get("sha256", ""))


def _words(
    proposal: Proposal, name: str, old: TargetFile | None, new: TargetFile | None
) -> tuple[str, ...]:
    """Return the change in words, nothing for what is too large to be shown."""
    try:
        before = proposal.base.target(name) if proposal.base and old else None
        after = proposal.target(name) if new else None
    # `check_content` says it as a problem.
    except StoiloError:
        return ()
    if before is None and after is None:
        return ()
    return describe_target(name, before, after)


def _warnings(
    ceremony: Ceremony, roles: tuple[RoleReview, ...], now: int, *, found_builds: bool
) -> Iterator[str]:
    proposal = ceremony.proposal
    if ceremony.about.rehearsal:
        yield "REHEARSAL: this root is marked; release-built verifiers refuse it"
    if ceremony.about.renews_expired:
        yield "the release below had expired: make sure that it is the newest one"
    yield from _key_warnings(roles)
    if proposal.base is not None and found_builds and _has_new(roles, BUILDERS_FILE):
        yield "who attests builds changes together with what they attest"
    if proposal.base is not None:
        proposed = {file.role for file in proposal.metadata}
        for known in expiries(proposal.base.signed(), now):
            if (
                known.state != "ok"
                and known.role in OFFLINE
                and known.role not in proposed
            ):
                yield f"{known.role} ends {known.state}, and this does not renew it"
    yield from _closed_gate(proposal, now)
    yield from _taken_back(proposal)


def _key_warnings(roles: tuple[RoleReview, ...]) -> Iterator[str]:
    for one in roles:
        for change in one.keys:
            if one.old_version and change.new_threshold < change.old_threshold:
                yield f"{change.role} would need fewer signatures than before"
            if change.new_threshold == change.keys > 1:
                yield f"{change.role} needs all of its {change.keys} keys: one lost stops it"


def _has_new(roles: tuple[RoleReview, ...], name: str) -> bool:
    return any(change.name == name for one in roles for change in one.targets)


def _closed_gate(proposal: Proposal, now: int) -> Iterator[str]:
    try:
        until = admits_until(proposal, now)
    except StoiloError:
        return  # said as a problem
    if not until:
        yield (
            "no gate epoch would be open now, so that nothing is admitted: `stoilo release "
            "online-keys --replace gate` on the server makes new ones to certify"
        )


def _taken_back(proposal: Proposal) -> Iterator[str]:
    if proposal.base is None or proposal.role("revocation") is None:
        return
    try:
        before = read_list(proposal.base.target, RevocationFile)
        after = read_list(proposal.target, RevocationFile)
    except StoiloError:
        return  # said as a problem
    gone = {*before.digests, *before.flavors} - {*after.digests, *after.flavors}
    for digest in sorted(gone):
        yield f"{digest} was withdrawn and would be allowed again"
    for epoch in sorted(set(before.epochs) - set(after.epochs)):
        if epoch >= after.min_epoch:
            yield f"gate epoch {epoch} was withdrawn and would be allowed again"


def render_review(found: Review, folder: str = "FOLDER") -> str:
    """Return the whole review, ending in what to do next."""
    return "\n".join(show_line(line) for line in _lines(found, folder))


def _lines(found: Review, folder: str) -> Iterator[str]:
    yield f"Release of {found.origin}" + (" (REHEARSAL)" if found.rehearsal else "")
    yield f"  proposed {render_time(found.created)}; this machine says {render_time(found.now)}"
    if found.note:
        # Without the room that would make it look like lines of ours.
        yield f"  note: {' '.join(show_line(found.note).split())}"
    yield f"  builds on {found.base[:16] or 'nothing: this is the first release'}"
    if found.first_root:
        yield f"  first root {group_digest(found.first_root)}"
    for role in found.roles:
        yield ""
        yield from _role(role)
    if found.builds:
        yield ""
        yield "Built equal by:"
    for build in found.builds:
        yield (
            f"  {build.part} {build.platform}: {', '.join(build.builders)} "
            f"({len(build.builders)} of {build.threshold} needed), {build.archive[:16]}"
        )
    if found.boinc_unsigned:
        yield f"Not signed by BOINC's key yet: {', '.join(found.boinc_unsigned)}"
    yield ""
    yield from (f"Warning: {warning}" for warning in found.warnings)
    for problem in found.problems:
        yield f"PROBLEM: {problem.message} [{problem.code}]"
        if problem.hint:
            yield f"  {problem.hint}"
    yield "Proposal:"
    yield f"  {group_digest(found.digest)}"
    yield f"Next: {next_step(found, folder)}"


def _role(role: RoleReview) -> Iterator[str]:
    was = f"{role.old_version} -> " if role.old_version else ""
    yield f"{role.role} {was}{role.new_version}, ends {render_time(role.expires)}"
    for change in role.keys:
        yield from _keys(change)
    for target in role.targets:
        yield from _target(target)
    for quorum in role.quorums:
        yield f"  {_quorum(quorum)}"


def _keys(change: KeyChange) -> Iterator[str]:
    was = f"{change.old_threshold} -> " if change.old_threshold else ""
    yield f"  keys of {change.role}: {was}{change.new_threshold} of {change.keys} sign"
    for one in change.joined:
        yield f"    + {one.name}"
        yield f"        {one.whole}"
    yield from (f"    - {_person(one)}" for one in change.left)


def _target(change: TargetChange) -> Iterator[str]:
    old, new = change.old[:16] or "new", change.new[:16] or "removed"
    size = f", {change.size:,} bytes" if change.new else ""
    yield f"  {change.name}: {old} -> {new}{size}"
    yield from (f"    {line}" for line in change.words)


def _quorum(found: Quorum) -> str:
    standing = "" if found.standing == "proposed" else " (keys in force)"
    state = "signed" if found.met else "MISSING"
    signed = _names(found.signed) or "nobody"
    text = f"{state}{standing}: {len(found.signed)} of {found.threshold} needed, by {signed}"
    return text if found.met else f"{text}; can sign: {_names(found.missing)}"


def _names(people: Iterable[Person]) -> str:
    return ", ".join(_person(one) for one in people)


def _person(one: Person) -> str:
    return f"{one.name} [{one.fingerprint}]"


def next_step(found: Review, folder: str) -> str:
    """Return the command that comes next."""
    if found.problems:
        return "do not sign; mend what the problems name and review again"
    if found.complete and found.boinc_unsigned:
        return (
            f"stoilo release sign {folder} --key KEY, by the holder of BOINC's key; "
            f"for volunteers without BOINC: stoilo release publish {folder} --data DIR"
        )
    if found.complete:
        return f"stoilo release publish {folder} --data DIR"
    names = sorted(
        {
            f"{one.name} ({role.role})"
            for role in found.roles
            for quorum in role.quorums
            if not quorum.met
            for one in quorum.missing
        }
    )
    return f"stoilo release sign {folder} --key KEY, by some of: {', '.join(names)}"

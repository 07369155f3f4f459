"""A development root: every key of a project, made on one machine, and marked as such.

It is a release as a ceremony makes it (root 2-of-3, targets 2-of-3, one online key, gate
epochs certified ahead by a delegated role, others for revocation, policy and reviewers), made
by the same proposals and signed here by every key at once. It protects nobody, because its
offline keys lie beside the online ones: the root is marked and release-built verifiers refuse
it (I3).

    DIR/root.json            what a volunteer's --root FILE is
    DIR/metadata, targets    public, see `stoilo.signer.release_pack`
    DIR/online/*.pem         gate epochs, log, snapshot/timestamp, adding revocations:
                             the signer's
    DIR/offline/*.pem        root, targets, gate, policy, revocation, reviewers: nobody's at
                             run time
    DIR/state                the signer's memory
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec
from securesystemslib.signer import CryptoSigner
from tuf.api.metadata import Root

from stoilo.audit.format.note import KeyType, private_vkey, render_vkey
from stoilo.audit.format.policy import LogPolicy
from stoilo.audit.witness.client import NO_WITNESSES, with_log, without_urls
from stoilo.core.digests import Domain, domain_digest
from stoilo.core.errors import TrustError, UsageError
from stoilo.core.libraries import is_library_target
from stoilo.core.signatures import PrivateKey
from stoilo.executor.verifier.targets import (
    EpochFile,
    PolicyFile,
    ProjectFile,
    ReviewerFile,
    RevocationFile,
    TrustedRelease,
)
from stoilo.executor.verifier.trust import (
    DEVELOPMENT_MARK,
    FLOORS_FILE,
    HISTORY_FILE,
    POLICY_FILE,
    InstalledRelease,
    load_trust,
)
from stoilo.signer.ceremony.base_release import (
    BaseRelease,
    open_published,
    roles_ending,
)
from stoilo.signer.ceremony.content_checks import PART_FOLDERS, release_parts
from stoilo.signer.ceremony.folder import Ceremony, CeremonyFile
from stoilo.signer.ceremony.key_holders import KeyHolder, RoleSet
from stoilo.signer.ceremony.lists import (
    library_targets,
    list_target,
    read_epoch_files,
    read_list,
)
from stoilo.signer.ceremony.proposal import (
    Changes,
    NewTarget,
    Proposal,
    first_proposal,
    next_proposal,
)
from stoilo.signer.ceremony.publication import write_release
from stoilo.signer.ceremony.requests import epoch_targets, next_log_policy
from stoilo.signer.ceremony.signatures import add_signature, quorums
from stoilo.signer.key_files import (
    ensure_key,
    make_private_directory,
)
from stoilo.signer.process.memory import LEDGER_FILE, CheckpointLedger, create_ledger
from stoilo.signer.process.online_keys import (
    DAY_S,
    EPOCH_LIFE_S,
    EPOCH_STEP_S,
    REQUESTED_FILE,
    epochs_ahead,
)
from stoilo.signer.release_pack import read_release
from stoilo.signer.repository import (
    newest,
    publishing,
    refresh_online_metadata,
    release_writer,
)
from stoilo.signer.roles import DELEGATED, OFFLINE, role_limits

EPOCHS_AHEAD: Final = 2
ONLINE_REVOCATION_KEY: Final = "revocation.pem"
"""File, below ``online``, of the key that may add to the offline list."""

_NO_REVIEWS: Final[Mapping[str, Sequence[str]]] = MappingProxyType({})
_NO_FILES: Final[Mapping[str, bytes]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class DevelopmentRoot:
    """Where a development root lies, and what it says."""

    directory: Path  # the release directory, also the signer's ``--keys``
    root_file: Path  # what volunteers take as ``--root``
    origin: str  # the project and its log
    log_vkey: str  # the log's verifier key, text
    trust: TrustedRelease  # the release, verified as a volunteer would


@dataclass(frozen=True, slots=True)
class _Terms:
    """What the offline roles certify; see `create_development_root`."""

    origin: str
    log_vkey: str
    installed: InstalledRelease
    policies: Sequence[str]
    reviewed: Mapping[str, Sequence[str]]
    witnesses: LogPolicy
    level_files: Mapping[str, bytes]


def create_development_root(
    directory: Path,  # made 0700; must not lie in a place that others can read
    origin: str,  # the project's name, also its log's
    now: int,  # Unix seconds
    *,
    installed: InstalledRelease,  # levels and language layer to certify
    # digests of the policies in force; empty certifies none by name
    policies: Sequence[str] = (),
    # policy digest → levels that need a review under it; what was certified of the
    # other `policies` stays
    reviewed: Mapping[str, Sequence[str]] = _NO_REVIEWS,
    # who must cosign the log: becomes the offline ``log/policy.txt``, with the log's
    # own key and without addresses
    witnesses: LogPolicy = NO_WITNESSES,
    # the levels' own files by level name, published for readers
    level_files: Mapping[str, bytes] = _NO_FILES,
) -> DevelopmentRoot:
    """Make or renew a development root; call it at every start.

    Raises:
        TrustError: STO-K003 for open modes, STO-K029 when made for another origin.
        UsageError: STO-K091 when the directory is a released project's.
    """
    check_development(directory)
    make_private_directory(directory)
    for part in ("online", "offline", "state"):
        make_private_directory(directory / part)
    log_key = ensure_key(directory / "online" / "log.pem")
    vkey = render_vkey(private_vkey(origin, KeyType.ED25519, log_key.key))
    terms = _Terms(origin, vkey, installed, policies, reviewed, witnesses, level_files)
    root_file = directory / "root.json"
    with publishing(directory):
        base = _published(directory)
        if base is None:
            # Only with the first root: a memory that was lost later must not begin anew.
            create_ledger(directory / "state" / LEDGER_FILE, origin)
        elif (known := read_list(base.target, ProjectFile).origin) != origin:
            raise TrustError("STO-K029", f"this root was made for {known!r}")
        _sign(directory, _renewed(directory, base, terms, now), now)
    return DevelopmentRoot(
        directory=directory,
        root_file=root_file,
        origin=origin,
        log_vkey=vkey,
        trust=load_trust(
            read_release(directory), root_file.read_bytes(), now, installed=installed
        ),
    )


def check_development(directory: Path) -> None:
    """Refuse (STO-K091) to use, or make, offline keys in a released project's directory."""
    root = newest(directory, "root", Root)
    if root is None:
        released = (directory / "state" / REQUESTED_FILE).exists()
    else:
        released = DEVELOPMENT_MARK not in root.signed.unrecognized_fields
    if released:
        raise UsageError(
            "STO-K091",
            "this is a released project: its offline keys are not on this machine",
            hint="people sign such a change: stoilo release request",
        )


def publish_changes(directory: Path, changes: Changes, now: int) -> None:
    """Sign and publish `changes`; the caller holds `publishing`.

    Raises ``STO-K091`` for a released project's directory; ``STO-K012`` when a key here
    is not one that its role has.
    """
    check_development(directory)
    proposal = next_proposal(open_published(directory), changes, now)
    _sign(directory, development_ceremony(proposal, now), now)


def publish_ceremony(directory: Path, ceremony: Ceremony, now: int) -> None:
    """Sign and publish what `development_ceremony` returned; as `publish_changes`."""
    _sign(directory, ceremony, now)


def development_ceremony(proposal: Proposal, now: int) -> Ceremony:
    """Return the ceremony of a proposal that this machine signs alone."""
    project = read_list(proposal.target, ProjectFile)
    base = "" if proposal.base is None else proposal.base.digest
    about = CeremonyFile(project.origin, rehearsal=False, created=now, base=base)
    return Ceremony(about, proposal)


def _published(directory: Path) -> BaseRelease | None:
    # The timestamp comes last: without one nobody has read what an interrupted first
    # publication left, and it is made again from the beginning.
    there = (directory / "metadata" / "timestamp.json").exists()
    return open_published(directory) if there else None


def _renewed(
    directory: Path, base: BaseRelease | None, terms: _Terms, now: int
) -> Ceremony:
    """Return what makes the release say `terms`, and renews what ends soon."""
    put = tuple(_targets(directory, base, terms, now))
    if base is None:
        roles = dict(_roles(directory))
        return development_ceremony(
            first_proposal(roles, put, now, development=True), now
        )
    wanted = {one.name for one in put}
    # Parts and floors are published by calls of their own; hosts still fetch them.
    gone = (
        name
        for name in base.names()
        if name not in wanted
        and not name.startswith(PART_FOLDERS)
        and name != FLOORS_FILE
    )
    changes = Changes(put, tuple(gone), renew=roles_ending(base, now))
    return development_ceremony(next_proposal(base, changes, now), now)


def _targets(
    directory: Path, base: BaseRelease | None, terms: _Terms, now: int
) -> Iterator[NewTarget]:
    """Yield everything that the release names, but for parts and floors."""
    proposal = Proposal(base)
    installed = terms.installed
    levels: dict[str, tuple[str, ...]] = {}
    for level in installed.levels:
        levels[level.name] = (*levels.get(level.name, ()), level.digest)
    languages = (installed.language_digest, *installed.languages)
    yield list_target(ProjectFile(terms.origin, levels, languages))
    for name, data in terms.level_files.items():
        yield NewTarget.of(f"levels/{name}.toml", data)
    yield from library_targets()
    # Flavors of an earlier build stay, and so do the libraries that they hold.
    listed = {one for part in release_parts(proposal) for one in part.libraries}
    for name in filter(is_library_target, base.names() if base else ()):
        data = proposal.target(name) or b""
        if domain_digest(Domain.LIBRARY, data) in listed:
            yield NewTarget.of(name, data)
    policy = without_urls(with_log(terms.witnesses, terms.log_vkey))
    path = directory / "state" / LEDGER_FILE
    size = CheckpointLedger(path).last.size if path.exists() else 0
    old = (proposal.target(POLICY_FILE), proposal.target(HISTORY_FILE))
    for name, data in next_log_policy(*old, policy, now=now, size=size).items():
        yield NewTarget.of(name, data)
    yield from epoch_targets(_wanted_epochs(directory, base, now))
    yield _policies(proposal, terms)
    # Read, not made anew: a restart must not allow what was withdrawn.
    denied = read_list(proposal.target, RevocationFile)
    yield list_target(with_online_key(directory, denied))
    yield list_target(read_list(proposal.target, ReviewerFile))


def _wanted_epochs(
    directory: Path, base: BaseRelease | None, now: int
) -> tuple[EpochFile, ...]:
    """Return the epochs to certify: those not long over, and enough ahead of `now`."""
    known = () if base is None else read_epoch_files(base.target)
    kept = [epoch for epoch in known if epoch.not_after > now - EPOCH_LIFE_S]
    until = now + (EPOCHS_AHEAD - 1) * EPOCH_STEP_S - DAY_S
    return epochs_ahead(directory, now, kept, until)


def _policies(proposal: Proposal, terms: _Terms) -> NewTarget:
    """Return the policies to certify; what was said of earlier ones is kept."""
    known = dict(read_list(proposal.target, PolicyFile).reviewed)
    known |= {digest: tuple(levels) for digest, levels in terms.reviewed.items()}
    # Tasks admitted under an earlier policy are still judged by its rules.
    kept = {one: levels for one, levels in known.items() if one in terms.policies}
    return list_target(PolicyFile(tuple(terms.policies), kept))


def with_online_key(directory: Path, denied: RevocationFile) -> RevocationFile:
    """Return the list, naming the directory's online revocation key if it names none."""
    # Without a key that may add, nothing could be withdrawn before the next start.
    if denied.keys:
        return denied
    online = ensure_key(directory / "online" / ONLINE_REVOCATION_KEY)
    return msgspec.structs.replace(denied, keys=(online.public.raw.hex(),))


def _roles(directory: Path) -> Iterator[tuple[str, RoleSet]]:
    for role in OFFLINE:
        keys = _keys(directory, role)
        holders = (KeyHolder(name, key.public) for name, key in keys.items())
        yield role, RoleSet(tuple(holders), role_limits(role).min_threshold)
    online = ensure_key(directory / "online" / "online.pem")
    for role in ("snapshot", "timestamp"):
        yield role, RoleSet((KeyHolder("server", online.public),), 1)


def _keys(directory: Path, role: str) -> dict[str, PrivateKey]:
    """Return a role's keys, as many as it must have at least, by their files' names."""
    count = role_limits(role).min_keys
    names = [role] if role in DELEGATED else [f"{role}-{n + 1}" for n in range(count)]
    return {name: ensure_key(directory / "offline" / f"{name}.pem") for name in names}


def _sign(directory: Path, ceremony: Ceremony, now: int) -> None:
    """Sign a ceremony by every key that its files need, publish it, and name it online."""
    signed = []
    for unsigned in ceremony.proposal.metadata:
        keys = _keys(directory, unsigned.role).values()
        file = add_signature(unsigned, *(CryptoSigner(key.key) for key in keys))
        # A key file that was exchanged: nothing it signs would be believed.
        if not all(one.met for one in quorums(ceremony.proposal, file)):
            raise TrustError("STO-K012", f"the keys here may not sign {file.role}")
        signed.append(file)
    proposal = replace(ceremony.proposal, metadata=tuple(signed))
    release_parts(proposal)  # refused here, not by every host
    files = release_writer(directory, public=False)
    write_release(replace(ceremony, proposal=proposal), files)
    online = ensure_key(directory / "online" / "online.pem")
    refresh_online_metadata(directory, online, now)

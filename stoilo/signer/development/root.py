"""A development root: every key of a project, made on one machine, and marked as such.

It is a release as a ceremony makes it (root 2-of-3, targets 2-of-3, one online key, gate
epochs certified ahead by a delegated role, others for revocation, policy and reviewers), made
by the same proposals and signed here by every key at once. It protects nobody, because its
offline keys lie beside the online ones: the root is marked and release-built verifiers refuse
it (I3).

    DIR/root.json            what a volunteer's --root FILE is
    DIR/metadata, targets    public, see `stoilo.signer.release_directory`
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
from stoilo.core.errors import TrustError, UsageError
from stoilo.core.signatures import PrivateKey
from stoilo.executor.verifier.targets import (
    EpochFile,
    EpochsFile,
    InstalledRelease,
    PolicyFile,
    ProjectFile,
    ReviewerFile,
    RevocationFile,
    TrustedRelease,
    read_target,
)
from stoilo.executor.verifier.trust import (
    DEVELOPMENT_MARK,
    EPOCHS_FILE,
    FLOORS_FILE,
    HISTORY_FILE,
    POLICIES_FILE,
    POLICY_FILE,
    PROJECT_FILE,
    REVIEWERS_FILE,
    REVOCATION_FILE,
    load_trust,
)
from stoilo.signer.ceremony.base_release import BaseRelease, open_published
from stoilo.signer.ceremony.content_checks import release_parts
from stoilo.signer.ceremony.folder import Ceremony, CeremonyFile
from stoilo.signer.ceremony.key_holders import KeyHolder, RoleSet
from stoilo.signer.ceremony.proposal import (
    Changes,
    NewTarget,
    Proposal,
    ReleasePlan,
    first_proposal,
    next_proposal,
)
from stoilo.signer.ceremony.publication import ReleaseWriter, write_release
from stoilo.signer.ceremony.requests import (
    epoch_targets,
    named_record,
    next_log_policy,
    roles_ending,
)
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
from stoilo.signer.release_directory import read_release
from stoilo.signer.repository import (
    newest,
    publishing,
    refresh_online_metadata,
)
from stoilo.signer.roles import DELEGATED, OFFLINE, role_limits

EPOCHS_AHEAD: Final = 2
ONLINE_REVOCATION_KEY: Final = "revocation.pem"
"""File, below ``online``, of the key that may add to the offline list."""

_NO_REVIEWS: Final[Mapping[str, Sequence[str]]] = MappingProxyType({})
_NO_FILES: Final[Mapping[str, bytes]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class DevelopmentRoot:
    """Where a development root lies, and what it says.

    Attributes:
        directory: the release directory, also the signer's ``--keys``.
        root_file: what volunteers take as ``--root``.
        origin: the project and its log.
        log_vkey: the log's verifier key, text.
        trust: the release, verified as a volunteer would.
    """

    directory: Path
    root_file: Path
    origin: str
    log_vkey: str
    trust: TrustedRelease


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
    directory: Path,
    origin: str,
    now: int,
    *,
    installed: InstalledRelease,
    policies: Sequence[str] = (),
    reviewed: Mapping[str, Sequence[str]] = _NO_REVIEWS,
    witnesses: LogPolicy = NO_WITNESSES,
    level_files: Mapping[str, bytes] = _NO_FILES,
) -> DevelopmentRoot:
    """Make or renew a development root; call it at every start.

    Args:
        directory: made 0700; must not lie in a place that others can read.
        origin: the project's name, also its log's.
        now: Unix seconds.
        installed: levels and language layer to certify.
        policies: digests of the policies in force; empty certifies none by name.
        reviewed: policy digest → levels that need a review under it; what was certified
            of the other `policies` stays.
        witnesses: who must cosign the log: becomes the offline ``log/policy.txt``,
            with the log's own key and without addresses.
        level_files: the levels' own files by level name, published for readers.

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
        else:
            _check_origin(base, origin)
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
    project = read_target(
        proposal.target(PROJECT_FILE) or b"", ProjectFile, PROJECT_FILE
    )
    base = "" if proposal.base is None else proposal.base.digest
    about = CeremonyFile(project.origin, rehearsal=False, created=now, base=base)
    return Ceremony(about, proposal)


def published_epochs(base: BaseRelease) -> list[EpochFile]:
    """Return the epochs that a release certifies, by number."""
    listed = base.target(EPOCHS_FILE) or b"{}"
    numbers = read_target(listed, EpochsFile, EPOCHS_FILE).epochs
    names = [f"gate/{number}.json" for number in sorted(numbers)]
    return [read_target(base.target(name) or b"", EpochFile, name) for name in names]


def _published(directory: Path) -> BaseRelease | None:
    # The timestamp comes last: without one nobody has read what an interrupted first
    # publication left, and it is made again from the beginning.
    there = (directory / "metadata" / "timestamp.json").exists()
    return open_published(directory) if there else None


def _check_origin(base: BaseRelease, origin: str) -> None:
    data = base.target(PROJECT_FILE) or b""
    known = read_target(data, ProjectFile, PROJECT_FILE).origin
    if known != origin:
        raise TrustError("STO-K029", f"this root was made for {known!r}")


def _renewed(
    directory: Path, base: BaseRelease | None, terms: _Terms, now: int
) -> Ceremony:
    """Return what makes the release say `terms`, and renews what ends soon."""
    put = tuple(_targets(directory, base, terms, now))
    if base is None:
        roles = dict(_roles(directory))
        plan = ReleasePlan(roles, put, rehearsal=False, now=now, development=True)
        return development_ceremony(first_proposal(plan), now)
    wanted = {one.name for one in put}
    # Parts and floors are published by calls of their own; hosts still fetch them.
    gone = (
        name
        for name in base.names()
        if name not in wanted and not name.startswith(_PARTS) and name != FLOORS_FILE
    )
    changes = Changes(put, tuple(gone), renew=roles_ending(base, now))
    return development_ceremony(next_proposal(base, changes, now), now)


_PARTS: Final = ("launcher/", "verifier/", "flavor/")
"""How the targets of launchers, verifiers and flavors begin."""


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
    yield named_record(PROJECT_FILE, ProjectFile(terms.origin, levels, languages))
    for name, data in terms.level_files.items():
        yield NewTarget.of(f"levels/{name}.toml", data)
    policy = without_urls(with_log(terms.witnesses, terms.log_vkey))
    path = directory / "state" / LEDGER_FILE
    size = CheckpointLedger(path).last.size if path.exists() else 0
    old = (proposal.target(POLICY_FILE), proposal.target(HISTORY_FILE))
    for name, data in next_log_policy(*old, policy, now=now, size=size).items():
        yield NewTarget.of(name, data)
    yield from epoch_targets(_wanted_epochs(directory, base, now))
    yield _policies(proposal, terms)
    # Read, not made anew: a restart must not allow what was withdrawn.
    data = proposal.target(REVOCATION_FILE) or b"{}"
    denied = read_target(data, RevocationFile, REVOCATION_FILE)
    yield named_record(REVOCATION_FILE, with_online_key(directory, denied))
    named = proposal.target(REVIEWERS_FILE)
    yield NewTarget.of(REVIEWERS_FILE, named or msgspec.json.encode(ReviewerFile()))


def _wanted_epochs(
    directory: Path, base: BaseRelease | None, now: int
) -> tuple[EpochFile, ...]:
    """Return the epochs to certify: those not long over, and enough ahead of `now`."""
    known = () if base is None else published_epochs(base)
    kept = [epoch for epoch in known if epoch.not_after > now - EPOCH_LIFE_S]
    until = now + (EPOCHS_AHEAD - 1) * EPOCH_STEP_S - DAY_S
    return epochs_ahead(directory, now, kept, until)


def _policies(proposal: Proposal, terms: _Terms) -> NewTarget:
    """Return the policies to certify; what was said of earlier ones is kept."""
    data = proposal.target(POLICIES_FILE) or b"{}"
    known = dict(read_target(data, PolicyFile, POLICIES_FILE).reviewed)
    known |= {digest: tuple(levels) for digest, levels in terms.reviewed.items()}
    # Tasks admitted under an earlier policy are still judged by its rules.
    kept = {one: levels for one, levels in known.items() if one in terms.policies}
    return named_record(POLICIES_FILE, PolicyFile(tuple(terms.policies), kept))


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
    files = ReleaseWriter(directory, public=False)
    write_release(replace(ceremony, proposal=proposal), files)
    online = ensure_key(directory / "online" / "online.pem")
    refresh_online_metadata(directory, online, now)

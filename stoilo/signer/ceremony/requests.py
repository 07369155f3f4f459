"""What people ask for, as changes to a release's lists; beginning a ceremony on a release.

Each request takes a release as it will be (a proposal, which may be empty) and what is to
become different, and returns `Changes`. Nothing here decides whether that is wise: the
review shows it, and people sign it or do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import msgspec

from stoilo.audit.format.policy import (
    MAX_RETIRED,
    LogPolicy,
    parse_history,
    parse_policy,
    render_history,
    render_policy,
    succeed,
)
from stoilo.audit.witness.client import with_log, without_urls
from stoilo.core.errors import TrustError, UsageError
from stoilo.core.signatures import PublicKey, parse_public_key
from stoilo.executor.verifier.targets import (
    BuilderFile,
    BuilderKey,
    EpochFile,
    EpochsFile,
    FloorsFile,
    InstalledRelease,
    PolicyFile,
    ProjectFile,
    ReviewerFile,
    RevocationFile,
    read_target,
)
from stoilo.executor.verifier.trust import (
    BUILDERS_FILE,
    EPOCHS_FILE,
    FLOORS_FILE,
    HISTORY_FILE,
    POLICIES_FILE,
    POLICY_FILE,
    PROJECT_FILE,
    REHEARSAL_MARK,
    REVIEWERS_FILE,
    REVOCATION_FILE,
)
from stoilo.policies.policy import Policy
from stoilo.signer.ceremony.base_release import BaseRelease, open_published
from stoilo.signer.ceremony.folder import Ceremony, CeremonyFile, NamedBytes
from stoilo.signer.ceremony.key_holders import (
    ONLINE_ROLES,
    KeyHolder,
    RoleChange,
    RoleSet,
    role_set,
)
from stoilo.signer.ceremony.metadata import open_root
from stoilo.signer.ceremony.proposal import Changes, NewTarget, Proposal
from stoilo.signer.process.online_keys import OnlineKeys
from stoilo.signer.roles import OFFLINE, ceremony_bounds, expiries

SERVER = "server"
"""Who holds the online keys."""

_FileT = TypeVar("_FileT", bound=msgspec.Struct)

_ItemT = TypeVar("_ItemT", bound=int | str)


def find_release(directory: Path) -> Path:
    """Return the release directory in `directory`: itself, or a server's ``DIR/keys``.

    Raises ``STO-K052`` when neither holds release metadata.
    """
    for place in (directory, directory / "keys"):
        if (place / "metadata").is_dir():
            return place
    raise UsageError(
        "STO-K052",
        f"there is no release in {directory.name}",
        hint="give a release directory, or the data directory of `stoilo up`; what a "
        "ceremony's folder proposes shows `stoilo release review`",
    )


def begin_on(
    directory: Path, now: int, *, note: str = "", renews_expired: bool = False
) -> Ceremony:
    """Return an empty ceremony on the release in `directory`.

    Args:
        directory: a release directory, or a server's data directory.
        now: Unix seconds.
        note: why, for people.
        renews_expired: say on purpose that the release has run out.

    Raises:
        TrustError: ``STO-K052`` when the release does not hold, ``STO-K059`` when it
            has expired and nobody said so.
    """
    current = open_published(find_release(directory))
    project = current.target(PROJECT_FILE)
    if project is None:
        raise TrustError("STO-K052", f"the release has no {PROJECT_FILE}")
    _refuse_expired(current, now, renews_expired=renews_expired)
    about = CeremonyFile(
        origin=read_target(project, ProjectFile, PROJECT_FILE).origin,
        rehearsal=REHEARSAL_MARK in current.root.unrecognized_fields,
        created=now,
        note=note,
        base=current.digest,
        renews_expired=renews_expired,
    )
    return Ceremony(about, Proposal(current))


def add_builds(ceremony: Ceremony, builds: Iterable[NamedBytes]) -> Ceremony:
    """Return the ceremony with more attestations."""
    known = dict(ceremony.builds) | dict(builds)
    return replace(ceremony, builds=tuple(sorted(known.items())))


def roles_ending(current: BaseRelease, now: int) -> tuple[str, ...]:
    """Return the offline roles whose metadata ends soon, or has ended."""
    return tuple(
        one.role
        for one in expiries(current.signed(), now)
        if one.state != "ok" and one.role in OFFLINE
    )


def _refuse_expired(current: BaseRelease, now: int, *, renews_expired: bool) -> None:
    found = {one.role: one for one in expiries(current.signed(), now)}
    for role in (*OFFLINE, "timestamp"):
        known = found.get(role)
        if not renews_expired and (known is None or known.state == "expired"):
            what = "is not there" if known is None else "has expired"
            raise TrustError(
                "STO-K059",
                f"{role} of the release {what}",
                hint="start the server, which signs its timestamp, and copy again; if "
                "it has really run out, add --renew-expired",
            )


@dataclass(frozen=True, slots=True)
class FirstRelease:
    """What a project's first release certifies.

    Attributes:
        online: public keys made on the server.
        witnesses: who must cosign the log, without the log.
        installed: levels and language layer of this package.
        level_files: the levels' own files, by name.
        policies: in force from the first day.
        builders: whose builds count.
    """

    online: OnlineKeys
    witnesses: LogPolicy
    installed: InstalledRelease
    level_files: Mapping[str, bytes]
    policies: Sequence[Policy]
    builders: BuilderFile


def first_targets(release: FirstRelease) -> tuple[NewTarget, ...]:
    """Return every target of a first release without parts."""
    empty = Proposal(None)
    origin = release.online.origin
    project = ProjectFile(origin, {}, ())
    revocation = RevocationFile(keys=(release.online.revocation,))
    policy = without_urls(with_log(release.witnesses, release.online.log_vkey))
    return (
        *_with_levels(project, release.installed, release.level_files),
        NewTarget.of(POLICY_FILE, render_policy(policy)),
        named_record(FLOORS_FILE, FloorsFile()),
        named_record(BUILDERS_FILE, release.builders),
        *epoch_targets(release.online.epochs),
        *accept_policies(empty, release.policies).put,
        named_record(REVOCATION_FILE, revocation),
        named_record(REVIEWERS_FILE, ReviewerFile()),
    )


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """What must not run any more, or may again."""

    digests: tuple[str, ...] = ()
    flavors: tuple[str, ...] = ()
    epochs: tuple[int, ...] = ()
    min_epoch: int = 1

    def __or__(self, other: Withdrawal) -> Withdrawal:
        """Return both."""
        return Withdrawal(
            (*self.digests, *other.digests),
            (*self.flavors, *other.flavors),
            (*self.epochs, *other.epochs),
            max(self.min_epoch, other.min_epoch),
        )


def online_role(online: OnlineKeys) -> RoleSet:
    """Return who signs snapshot and timestamp."""
    return RoleSet((KeyHolder(SERVER, parse_public_key(online.online)),), 1)


def take_levels(
    proposal: Proposal, installed: InstalledRelease, files: Mapping[str, bytes]
) -> Changes:
    """Accept the levels and language layer of this package, the older ones after them."""
    return Changes(
        _with_levels(_read(proposal, PROJECT_FILE, ProjectFile), installed, files)
    )


def _with_levels(
    project: ProjectFile, installed: InstalledRelease, files: Mapping[str, bytes]
) -> tuple[NewTarget, ...]:
    kept = ceremony_bounds().kept_digests
    levels = dict(project.levels)
    for level in reversed(installed.levels):
        levels[level.name] = _first(level.digest, levels.get(level.name, ()), kept)
    languages = _first(installed.language_digest, project.languages, kept)
    record = msgspec.structs.replace(project, levels=levels, languages=languages)
    texts = (NewTarget.of(f"levels/{name}.toml", data) for name, data in files.items())
    return (named_record(PROJECT_FILE, record), *texts)


def _first(one: str, others: Iterable[str], kept: int) -> tuple[str, ...]:
    """Return `one` and then the others, at most `kept`."""
    return (one, *(other for other in others if other != one))[:kept]


def take_online_keys(proposal: Proposal, online: OnlineKeys) -> Changes:
    """Certify what the server has made: epochs, and its other keys where they are new.

    Raises ``STO-K062`` for the keys of another project.
    """
    project = _read(proposal, PROJECT_FILE, ProjectFile)
    if online.origin != project.origin:
        raise UsageError("STO-K062", f"these online keys are of {online.origin[:80]!r}")
    known = _read(proposal, EPOCHS_FILE, EpochsFile)
    over = set(known.epochs) - {epoch.epoch for epoch in online.epochs}
    # The offline list says which online key may add to it.
    denied = _read(proposal, REVOCATION_FILE, RevocationFile)
    if denied.keys != (online.revocation,):
        denied = msgspec.structs.replace(denied, keys=(online.revocation,))
    return Changes(
        put=(*epoch_targets(online.epochs), named_record(REVOCATION_FILE, denied)),
        drop=tuple(f"gate/{number}.json" for number in sorted(over)),
        keys=tuple(_online_changes(proposal, online)),
    )


def epoch_targets(epochs: Sequence[EpochFile]) -> tuple[NewTarget, ...]:
    """Return the files by which the gate role certifies exactly `epochs`."""
    numbers = EpochsFile(tuple(epoch.epoch for epoch in epochs))
    files = (named_record(f"gate/{epoch.epoch}.json", epoch) for epoch in epochs)
    return (named_record(EPOCHS_FILE, numbers), *files)


def _online_changes(proposal: Proposal, online: OnlineKeys) -> Iterable[RoleChange]:
    """Yield what makes snapshot and timestamp the server's newest key's."""
    file = proposal.newest("root")
    if file is None:
        return
    wanted = online_role(online).holders
    for role in ONLINE_ROLES:
        there = role_set(open_root(file).signed, role).holders
        if [one.key for one in there] != [one.key for one in wanted]:
            out = tuple(one for one in there if one.key not in {w.key for w in wanted})
            known = {one.key for one in there}
            add = tuple(one for one in wanted if one.key not in known)
            yield RoleChange(role, out, add, 1)


def take_log_policy(
    proposal: Proposal, witnesses: LogPolicy, log_vkey: str, *, now: int, size: int
) -> Changes:
    """Demand other witnesses, or another log key; what held before goes on to hold.

    Args:
        proposal: the release as it will be.
        witnesses: who must cosign, without the log.
        log_vkey: the log's verifier key, text; empty: those that are trusted now.
        now: Unix seconds of the change.
        size: leaves of the newest checkpoint under the policy in force.

    Raises:
        TrustError: ``STO-L003`` when too many policies would be remembered.
        UsageError: ``STO-L003`` for a policy that cannot be.
    """
    current = _bytes(proposal, POLICY_FILE)
    new = replace(witnesses, logs=parse_policy(current).logs)
    if log_vkey:
        new = with_log(witnesses, log_vkey)
    history = proposal.target(HISTORY_FILE)
    files = next_log_policy(current, history, without_urls(new), now=now, size=size)
    return Changes(tuple(NewTarget.of(name, data) for name, data in files.items()))


def next_log_policy(
    current: bytes | None,
    history: bytes | None,
    policy: LogPolicy,
    *,
    now: int,
    size: int,
) -> dict[str, bytes]:
    """Return the targets that say whom to believe about the log, by name.

    Args:
        current: the policy in force, None before the first.
        history: those that it replaced; they go on speaking for what they accepted.
        policy: to be in force from now on.
        now: Unix seconds.
        size: leaves of the newest checkpoint under the policy in force.
    """
    if current is not None:
        older = parse_history(history) if history else ()
        # room for one more among the older ones
        known = replace(parse_policy(current), older=older[: MAX_RETIRED - 1])
        policy = succeed(known, policy, now=now, size=size)
    files = {POLICY_FILE: render_policy(policy.current)}
    if policy.older:
        files[HISTORY_FILE] = render_history(policy.older)
    return files


def accept_policies(
    proposal: Proposal, add: Iterable[Policy], drop: Iterable[str] = ()
) -> Changes:
    """Accept policies, the newest first, and no longer those with digests in `drop`."""
    known = _or_new(proposal, POLICIES_FILE, PolicyFile())
    gone = set(drop)
    digests = [one for one in known.digests if one not in gone]
    reviewed = dict(known.reviewed)
    for policy in add:
        digests = [policy.digest, *(one for one in digests if one != policy.digest)]
        names = tuple(name for name in policy.levels if policy.needs_review(name))
        reviewed[policy.digest] = names
    # Rules of a policy that is no longer accepted would confuse the next reader.
    kept = {digest: names for digest, names in reviewed.items() if digest in digests}
    return Changes((named_record(POLICIES_FILE, PolicyFile(tuple(digests), kept)),))


def change_builders(
    proposal: Proposal,
    add: Iterable[BuilderKey],
    out: Iterable[PublicKey],
    threshold: int | None,
) -> Changes:
    """Name other builders; raises ``STO-K054`` when one to leave is not there."""
    known = _or_new(proposal, BUILDERS_FILE, BuilderFile())
    keys = {one.key: one for one in known.keys}
    for key in out:
        if keys.pop(key.raw.hex(), None) is None:
            raise UsageError("STO-K054", "no builder of the release has this key")
    keys |= {one.key: one for one in add}
    wanted = known.threshold if threshold is None else threshold
    record = BuilderFile(tuple(keys.values()), wanted)
    return Changes((named_record(BUILDERS_FILE, record),))


def raise_floors(proposal: Proposal, floors: Mapping[str, int]) -> Changes:
    """Let no older part work: part → lowest serial (``verifier`` is a part here)."""
    known = _or_new(proposal, FLOORS_FILE, FloorsFile())
    serials = known.serials | {
        part: serial for part, serial in floors.items() if part != "verifier"
    }
    verifier = floors.get("verifier", known.verifier)
    return Changes((named_record(FLOORS_FILE, FloorsFile(verifier, serials)),))


def withdraw(
    proposal: Proposal, made: Withdrawal, *, take_back: bool = False, settle: int = 0
) -> Changes:
    """Withdraw offline, or allow again what was withdrawn.

    Args:
        proposal: the release as it will be.
        made: what.
        take_back: remove it from the list instead.
        settle: online statements up to this number are settled by the new list.

    Raises:
        UsageError: ``STO-K054`` when nothing of it is withdrawn and it is to be allowed.
    """
    known = _read(proposal, REVOCATION_FILE, RevocationFile)
    merge = _minus if take_back else _plus
    record = msgspec.structs.replace(
        known,
        digests=merge(known.digests, made.digests),
        flavors=merge(known.flavors, made.flavors),
        epochs=merge(known.epochs, made.epochs),
        min_epoch=known.min_epoch
        if take_back
        # It only rises: hosts remember the highest.
        else max(known.min_epoch, made.min_epoch),
        settled=max(known.settled, settle),
    )
    # Most likely a digest with a typing error.
    if take_back and record == known:
        raise UsageError("STO-K054", "nothing of this is withdrawn by the offline list")
    return Changes((named_record(REVOCATION_FILE, record),))


def _plus(known: tuple[_ItemT, ...], more: tuple[_ItemT, ...]) -> tuple[_ItemT, ...]:
    return tuple(dict.fromkeys((*known, *more)))


def _minus(known: tuple[_ItemT, ...], less: tuple[_ItemT, ...]) -> tuple[_ItemT, ...]:
    return tuple(one for one in known if one not in less)


def _bytes(proposal: Proposal, name: str) -> bytes:
    data = proposal.target(name)
    if data is None:
        raise UsageError("STO-K054", f"the release has no {name}")
    return data


def _read(proposal: Proposal, name: str, kind: type[_FileT]) -> _FileT:
    return read_target(_bytes(proposal, name), kind, name)


def _or_new(proposal: Proposal, name: str, new: _FileT) -> _FileT:
    """Return a record of the release, or `new` when there is no release yet."""
    data = proposal.target(name)
    return new if data is None else read_target(data, type(new), name)


def named_record(name: str, record: msgspec.Struct) -> NewTarget:
    """Return `record` as the target of that name."""
    return NewTarget.of(name, msgspec.json.encode(record))

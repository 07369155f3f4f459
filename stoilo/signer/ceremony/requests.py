"""What people ask for, as changes to a release's lists.

Each request takes a release as it will be (a proposal, which may be empty) and what is to
become different, and returns `Changes`. Nothing here decides whether that is wise: the
review shows it, and people sign it or do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

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
from stoilo.core.errors import UsageError
from stoilo.core.signatures import PublicKey, parse_public_key
from stoilo.core.statement import RevocationStatement
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
)
from stoilo.executor.verifier.trust import (
    HISTORY_FILE,
    POLICY_FILE,
)
from stoilo.policies.policy import Policy
from stoilo.signer.ceremony.key_holders import (
    ONLINE_ROLES,
    KeyHolder,
    RoleChange,
    RoleSet,
    role_set,
)
from stoilo.signer.ceremony.lists import list_target, read_list
from stoilo.signer.ceremony.metadata import open_root
from stoilo.signer.ceremony.proposal import Changes, NewTarget, Proposal
from stoilo.signer.process.online_keys import OnlineKeys
from stoilo.signer.roles import ceremony_bounds

SERVER = "server"
"""Who holds the online keys."""


def first_targets(
    online: OnlineKeys,  # public keys made on the server
    installed: InstalledRelease,  # levels and language layer of this package
    *,
    witnesses: LogPolicy,  # who must cosign the log, without the log
    level_files: Mapping[str, bytes],  # the levels' own files, by name
    policies: Sequence[Policy],  # in force from the first day
    builders: BuilderFile,  # whose builds count
) -> tuple[NewTarget, ...]:
    """Return every target of a first release without parts."""
    policy = without_urls(with_log(witnesses, online.log_vkey))
    return (
        *_with_levels(ProjectFile(online.origin, {}, ()), installed, level_files),
        NewTarget.of(POLICY_FILE, render_policy(policy)),
        list_target(FloorsFile()),
        list_target(builders),
        *epoch_targets(online.epochs),
        *accept_policies(Proposal(None), policies).put,
        list_target(RevocationFile(keys=(online.revocation,))),
        list_target(ReviewerFile()),
    )


def online_role(online: OnlineKeys) -> RoleSet:
    """Return who signs snapshot and timestamp."""
    return RoleSet((KeyHolder(SERVER, parse_public_key(online.online)),), 1)


def take_levels(
    proposal: Proposal, installed: InstalledRelease, files: Mapping[str, bytes]
) -> Changes:
    """Accept the levels and language layer of this package, the older ones after them."""
    return Changes(
        _with_levels(read_list(proposal.target, ProjectFile), installed, files)
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
    return (list_target(record), *texts)


def _first(one: str, others: Iterable[str], kept: int) -> tuple[str, ...]:
    """Return `one` and then the others, at most `kept`."""
    return (one, *(other for other in others if other != one))[:kept]


def take_online_keys(proposal: Proposal, online: OnlineKeys) -> Changes:
    """Certify what the server has made: epochs, and its other keys where they are new.

    Raises ``STO-K063`` for the keys of another project.
    """
    project = read_list(proposal.target, ProjectFile)
    if online.origin != project.origin:
        raise UsageError("STO-K063", f"these online keys are of {online.origin[:80]!r}")
    known = read_list(proposal.target, EpochsFile)
    over = set(known.epochs) - {epoch.epoch for epoch in online.epochs}
    # The offline list says which online key may add to it.
    denied = read_list(proposal.target, RevocationFile)
    if denied.keys != (online.revocation,):
        denied = msgspec.structs.replace(denied, keys=(online.revocation,))
    return Changes(
        put=(*epoch_targets(online.epochs), list_target(denied)),
        drop=tuple(f"gate/{number}.json" for number in sorted(over)),
        keys=tuple(_online_changes(proposal, online)),
    )


def epoch_targets(epochs: Sequence[EpochFile]) -> tuple[NewTarget, ...]:
    """Return the files by which the gate role certifies exactly `epochs`."""
    numbers = EpochsFile(tuple(epoch.epoch for epoch in epochs))
    files = (
        NewTarget.of(f"gate/{epoch.epoch}.json", msgspec.json.encode(epoch))
        for epoch in epochs
    )
    return (list_target(numbers), *files)


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
    current = proposal.target(POLICY_FILE)
    if current is None:
        raise UsageError("STO-K054", f"the release has no {POLICY_FILE}")
    new = replace(witnesses, logs=parse_policy(current).logs)
    if log_vkey:
        new = with_log(witnesses, log_vkey)
    history = proposal.target(HISTORY_FILE)
    files = next_log_policy(current, history, without_urls(new), now=now, size=size)
    return Changes(tuple(NewTarget.of(name, data) for name, data in files.items()))


def next_log_policy(
    current: bytes | None,  # the policy in force, None before the first
    # those that it replaced; they go on speaking for what they accepted
    history: bytes | None,
    policy: LogPolicy,  # to be in force from now on
    *,
    now: int,  # Unix seconds
    size: int,  # leaves of the newest checkpoint under the policy in force
) -> dict[str, bytes]:
    """Return the targets that say whom to believe about the log, by name."""
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
    known = read_list(proposal.target, PolicyFile)
    gone = set(drop)
    digests = [one for one in known.digests if one not in gone]
    reviewed = dict(known.reviewed)
    for policy in add:
        digests = [policy.digest, *(one for one in digests if one != policy.digest)]
        names = tuple(name for name in policy.levels if policy.needs_review(name))
        reviewed[policy.digest] = names
    # Rules of a policy that is no longer accepted would confuse the next reader.
    kept = {digest: names for digest, names in reviewed.items() if digest in digests}
    return Changes((list_target(PolicyFile(tuple(digests), kept)),))


def change_builders(
    proposal: Proposal,
    add: Iterable[BuilderKey],
    out: Iterable[PublicKey],
    threshold: int | None,
) -> Changes:
    """Name other builders; raises ``STO-K054`` when one to leave is not there."""
    known = read_list(proposal.target, BuilderFile)
    keys = {one.key: one for one in known.keys}
    for key in out:
        if keys.pop(key.raw.hex(), None) is None:
            raise UsageError("STO-K054", "no builder of the release has this key")
    keys |= {one.key: one for one in add}
    wanted = known.threshold if threshold is None else threshold
    record = BuilderFile(tuple(keys.values()), wanted)
    return Changes((list_target(record),))


def raise_floors(proposal: Proposal, floors: Mapping[str, int]) -> Changes:
    """Let no older part work: part → lowest serial (``verifier`` is a part here)."""
    known = read_list(proposal.target, FloorsFile)
    serials = known.serials | {
        part: serial for part, serial in floors.items() if part != "verifier"
    }
    verifier = floors.get("verifier", known.verifier)
    return Changes((list_target(FloorsFile(verifier, serials)),))


Withdrawn = RevocationFile | RevocationStatement
"""Where only the lists of what is withdrawn count."""


def withdraw(proposal: Proposal, made: Withdrawn, *, settle: int = 0) -> Changes:
    """Withdraw offline; online statements up to number `settle` are settled by that."""
    known = read_list(proposal.target, RevocationFile)
    record = msgspec.structs.replace(
        merge_withdrawn(known, made), settled=max(known.settled, settle)
    )
    return Changes((list_target(record),))


def allow_again(proposal: Proposal, made: Withdrawn) -> Changes:
    """Take back what was withdrawn offline; raises ``STO-K054`` when it was not."""
    known = read_list(proposal.target, RevocationFile)
    record = merge_withdrawn(known, remove=made)
    return Changes((list_target(record),))


def merge_withdrawn(
    offline: RevocationFile,
    *more: Withdrawn,
    remove: Withdrawn | None = None,
) -> RevocationFile:
    """Return the offline list with everything that all of these withdraw. Pure.

    Raises ``STO-K054`` when something to `remove` is not withdrawn: most likely a digest
    with a typing error.
    """
    sources = (offline, *more)
    lowest = max(one.min_epoch for one in sources)
    digests = {item for one in sources for item in one.digests}
    flavors = {item for one in sources for item in one.flavors}
    epochs = {item for one in sources for item in one.epochs}
    if remove is not None:
        missing = [
            *(f"epoch {one}" for one in remove.epochs if one not in epochs),
            *(f"digest {one[:16]}" for one in remove.digests if one not in digests),
            *(f"flavor {one[:16]}" for one in remove.flavors if one not in flavors),
        ]
        if remove.min_epoch > 1 and lowest != remove.min_epoch:
            missing.append(f"the lowest epoch {remove.min_epoch}")
        if missing:
            raise UsageError("STO-K054", f"not withdrawn: {', '.join(missing)}")
        epochs -= set(remove.epochs)
        digests -= set(remove.digests)
        flavors -= set(remove.flavors)
        if remove.min_epoch > 1:  # a lower one that was set before holds again
            known = {one.min_epoch for one in sources} - {remove.min_epoch}
            lowest = max(known, default=1)
    return msgspec.structs.replace(
        offline,
        epochs=tuple(sorted(epochs)),
        digests=tuple(sorted(digests)),
        flavors=tuple(sorted(flavors)),
        min_epoch=lowest,
    )

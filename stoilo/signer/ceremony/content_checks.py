"""What a release's targets must say before anybody signs them: pure.

Readers refuse most of this too. It is looked at here because a mistake that has been
signed stops every volunteer until the next ceremony, and because only here somebody still
sees what the release said before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

import msgspec
from tuf.api.metadata import Role, TargetFile

from stoilo.audit.format.policy import parse_history, parse_policy
from stoilo.core.digests import content_digest
from stoilo.core.errors import StoiloError, TrustError
from stoilo.core.frozen_tree import MANIFEST_BYTES, parse_tree
from stoilo.core.levels import load_levels, parse_levels
from stoilo.core.libraries import (
    Library,
    add_libraries,
    is_library_target,
    library_target,
    parse_library,
)
from stoilo.core.signatures import parse_public_key
from stoilo.executor.verifier.targets import (
    MAX_PARTS,
    BuilderFile,
    EpochsFile,
    FloorsFile,
    PartFile,
    PolicyFile,
    ProjectFile,
    ReviewerFile,
    RevocationFile,
    read_epoch,
    read_parts,
)
from stoilo.executor.verifier.trust import (
    DEVELOPMENT_MARK,
    EPOCHS_FILE,
    HISTORY_FILE,
    POLICY_FILE,
    PROJECT_FILE,
    travels,
)
from stoilo.signer.ceremony.folder import Ceremony
from stoilo.signer.ceremony.key_holders import role_set
from stoilo.signer.ceremony.lists import LISTS, read_epoch_files, read_list
from stoilo.signer.ceremony.metadata import open_root, open_targets, targets_of
from stoilo.signer.ceremony.proposal import Proposal
from stoilo.signer.roles import DELEGATED, ceremony_bounds, open_until

REQUIRED: Final = (POLICY_FILE, *LISTS.values())
"""Targets without which no verifier takes a release."""

PART_FOLDERS: Final = ("launcher/", "verifier/", "flavor/", "policy/flavor-")
"""How the names of launchers', verifiers' and flavors' files begin."""

_EPOCH: Final = re.compile(r"gate/([0-9]{1,10})\.json")
_FileT = TypeVar("_FileT", bound=msgspec.Struct)


def named_targets(proposal: Proposal) -> dict[str, TargetFile]:
    """Return every target of the release as it will be, by name."""
    found: dict[str, TargetFile] = {}
    for role in ("targets", *DELEGATED):
        file = proposal.newest(role)
        if file is not None:
            found |= targets_of(file)
    return found


def release_parts(proposal: Proposal) -> tuple[PartFile, ...]:
    """Return the records of launchers, verifiers and flavors as they will be.

    Raises ``STO-K013`` when a record and its files disagree.
    """
    infos = named_targets(proposal)
    records = (
        name for name in infos if name.startswith(PART_FOLDERS) and travels(name)
    )
    return read_parts({name: proposal.target(name) or b"" for name in records}, infos)


def _read_old(proposal: Proposal, kind: type[_FileT]) -> _FileT | None:
    """Return a list as published, None for a first release."""
    return None if proposal.base is None else read_list(proposal.base.target, kind)


def check_content(ceremony: Ceremony) -> Iterator[StoiloError]:
    """Yield what is wrong with the targets, as errors that are not raised."""
    proposal = ceremony.proposal
    if missing := set(REQUIRED) - named_targets(proposal).keys():
        yield TrustError("STO-K063", f"the release would lack {min(missing)}")
        return
    for check in (
        _check_reach,
        _check_policies,
        _check_levels,
        _check_epochs,
        _check_lists,
        _check_builders,
        _check_parts,
    ):
        yield from _caught(check, proposal)
    yield from _caught(lambda one: _check_project(one, ceremony.about.origin), proposal)


def _caught(
    check: Callable[[Proposal], Iterator[StoiloError]], proposal: Proposal
) -> Iterator[StoiloError]:
    """Yield what `check` finds, and what stopped it."""
    try:
        yield from list(check(proposal))
    except StoiloError as error:
        yield (
            TrustError("STO-K063", error.message, hint=error.hint)
            if error.code.startswith(("STO-K01", "STO-P001"))
            else error
        )


def _check_reach(proposal: Proposal) -> Iterator[StoiloError]:
    """Every role names its own targets only, and is delegated exactly those."""
    file = proposal.newest("targets")
    if file is None:
        return
    targets = open_targets(file).signed
    delegated = (targets.delegations.roles if targets.delegations else None) or {}
    if set(delegated) != set(DELEGATED):
        yield TrustError("STO-K063", "targets does not delegate exactly our roles")
    known = set(targets.delegations.keys) if targets.delegations else set()
    yield from _unused("targets", known, delegated.values())
    newest = proposal.newest("root")
    if newest is not None:
        root = open_root(newest).signed
        yield from _unused("root", set(root.keys), root.roles.values())
    for name, row in delegated.items():
        # A role with a wider reach could name another's files.
        if row.paths != [f"{name}/*"] or not row.terminating or row.path_hash_prefixes:
            yield TrustError("STO-K063", f"{name} is delegated more than its own paths")
    for role in ("targets", *DELEGATED):
        own = proposal.newest(role)
        if own and role in DELEGATED and open_targets(own).signed.delegations:
            yield TrustError("STO-K063", f"{role} delegates to others in its turn")
        for name in targets_of(own) if own else ():
            prefix = name.partition("/")[0]
            if (prefix if prefix in DELEGATED else "targets") != role:
                yield TrustError("STO-K063", f"{role} names {name[:80]!r}")


def _unused(owner: str, known: set[str], rows: Iterable[Role]) -> Iterator[StoiloError]:
    """Refuse keys that no role uses: nobody would see them in a review."""
    for keyid in sorted(known - {keyid for row in rows for keyid in row.keyids}):
        yield TrustError("STO-K063", f"{owner} holds a key ({keyid[:8]}) of no role")


def _check_project(proposal: Proposal, origin: str) -> Iterator[StoiloError]:
    project = read_list(proposal.target, ProjectFile)
    if project.origin != origin:
        yield TrustError("STO-K063", f"{PROJECT_FILE} names another project")
    old = _read_old(proposal, ProjectFile)
    if old is not None and old.origin != project.origin:
        yield TrustError("STO-K063", "a project's origin never changes")
    if not project.languages or not all(project.levels.values()):
        yield TrustError(
            "STO-K063", f"{PROJECT_FILE} accepts no language layer or level"
        )


def _check_policies(proposal: Proposal) -> Iterator[StoiloError]:
    """The log policy reads, and trusts a log of this project."""
    policy = parse_policy(proposal.target(POLICY_FILE) or b"")
    origin = read_list(proposal.target, ProjectFile).origin
    if origin not in {log.name for log in policy.logs}:
        yield TrustError("STO-K063", f"{POLICY_FILE} trusts no log of {origin}")
    if HISTORY_FILE in named_targets(proposal):
        parse_history(proposal.target(HISTORY_FILE) or b"")


def _check_levels(proposal: Proposal) -> Iterator[StoiloError]:
    project = read_list(proposal.target, ProjectFile)
    files = [name for name in named_targets(proposal) if name.startswith("levels/")]
    texts = [proposal.target(name) or b"" for name in files]
    try:
        levels = parse_levels(texts)
    except (ValueError, TypeError, LookupError) as error:  # a parser of trusted files
        raise TrustError("STO-K063", "a level's file cannot be read") from error
    for level in levels:
        if level.digest not in project.levels.get(level.name, ()):
            yield TrustError(
                "STO-K063", f"levels/{level.name}.toml is not a level of {PROJECT_FILE}"
            )


def _check_epochs(proposal: Proposal) -> Iterator[StoiloError]:
    """Epochs read, none changes under its number, and new ones have higher numbers."""
    listed = set(read_list(proposal.target, EpochsFile).epochs)
    named = {
        int(found[1])
        for name in named_targets(proposal)
        if (found := _EPOCH.fullmatch(name))
    }
    if len(listed) > ceremony_bounds().max_epochs:
        yield TrustError("STO-K063", "too many gate epochs would be certified at once")
    if listed != named:
        yield TrustError("STO-K063", f"{EPOCHS_FILE} and the epochs' files disagree")
    base = proposal.base
    old = _read_old(proposal, EpochsFile)
    known = set(old.epochs) if old else set()
    for number in sorted(listed & named):
        name = f"gate/{number}.json"
        data = proposal.target(name) or b""
        read_epoch(data, number)
        before = base.target(name) if base else None
        if before is not None and before != data:
            yield TrustError(
                "STO-K063", f"gate epoch {number} changes under its number"
            )
        # Old numbers never return: hosts refuse epochs below the highest withdrawn one.
        if known and before is None and number < max(known):
            yield TrustError(
                "STO-K063", f"gate epoch {number} comes after {max(known)}"
            )


def _check_lists(proposal: Proposal) -> Iterator[StoiloError]:
    """Revocations, policies, reviewers and floors read; what only rises does."""
    read_list(proposal.target, PolicyFile)
    reviewers = read_list(proposal.target, ReviewerFile)
    denied = read_list(proposal.target, RevocationFile)
    for key in (*denied.keys, *(one.key for one in reviewers.keys)):
        parse_public_key(key)
    before = _read_old(proposal, RevocationFile)
    # Hosts remember both and would refuse the release.
    if before and (
        denied.min_epoch < before.min_epoch or denied.settled < before.settled
    ):
        yield TrustError("STO-K063", "the lowest gate epoch would go back")
    floors = read_list(proposal.target, FloorsFile)
    old = _read_old(proposal, FloorsFile) or FloorsFile()
    # Hosts keep the highest floor they met; a lower one only deceives its reader.
    if floors.verifier < old.verifier:
        yield TrustError("STO-K063", "the verifier's floor would go back")
    for part, serial in old.serials.items():
        if floors.serials.get(part, 0) < serial:
            yield TrustError("STO-K063", f"the floor of {part} would go back")


def _check_builders(proposal: Proposal) -> Iterator[StoiloError]:
    builders = read_list(proposal.target, BuilderFile)
    keys = [parse_public_key(one.key).raw for one in builders.keys]
    if len(set(keys)) != len(keys):
        yield TrustError("STO-K053", "one key is named for two builders")
    if len({one.name.lower() for one in builders.keys}) != len(keys):
        yield TrustError("STO-K053", "two builders are under one name")
    if builders.threshold > len(keys):
        yield TrustError("STO-K053", "more builders must agree than there are")


def _check_parts(proposal: Proposal) -> Iterator[StoiloError]:
    """Records agree with their files; no part goes back or below its own floor."""
    parts = release_parts(proposal)
    if len(parts) > MAX_PARTS:  # more than the log's record of a release can name
        yield TrustError(
            "STO-K063", f"the release would have more than {MAX_PARTS} parts"
        )
    yield from _check_libraries(proposal, parts)
    yield from _check_policy_flavors(proposal, parts)
    floors = read_list(proposal.target, FloorsFile)
    base = proposal.base
    old = release_parts(Proposal(base)) if base else ()
    known = {(one.part, one.platform): one for one in old}
    for part in parts:
        before = known.get((part.part, part.platform))
        same = before is not None and before.archive.sha256 == part.archive.sha256
        if before is not None and part.serial <= before.serial and before != part:
            yield TrustError(
                "STO-K063",
                f"{part.part} for {part.platform}: serial {part.serial} does not rise "
                f"above {before.serial}",
                hint="build it again with a higher serial",
            )
        floor = floors.serials.get(part.part, 1)
        floor = max(floor, floors.verifier) if part.part == "verifier" else floor
        if part.serial < floor:
            yield TrustError(
                "STO-K063",
                f"{part.part} for {part.platform} would be below its own floor {floor}",
            )
        if not same and part.tree:
            yield from _check_tree(proposal, part)


def _check_tree(proposal: Proposal, part: PartFile) -> Iterator[StoiloError]:
    """The tree's list is what the record says; its bytes are in the metadata already."""
    name = f"{part.target}.tree"
    for one in proposal.targets:
        if one.name != name:
            continue
        if one.size > MANIFEST_BYTES:
            yield TrustError("STO-K063", f"{name} is too large")
            return
        with one.open() as stream:
            data = stream.read()
        tree = parse_tree(data)
        if (tree.part, tree.platform) != (part.part, part.platform):
            yield TrustError("STO-K063", f"{name} is another part's list")
        if content_digest(data) != part.tree:
            yield TrustError("STO-K063", f"{name} is another tree's list")


def _check_libraries(
    proposal: Proposal, parts: tuple[PartFile, ...]
) -> Iterator[StoiloError]:
    """Libraries' files read; flavors name accepted ones, the same on each platform."""
    known = {}
    for name in filter(is_library_target, named_targets(proposal)):
        one = parse_library(proposal.target(name) or b"")
        known[one.digest] = one
        if name != library_target(one):
            yield TrustError("STO-K063", f"{name} should be {library_target(one)}")
    listed: dict[str, tuple[str, ...]] = {}
    for part in parts:
        if missing := [digest for digest in part.libraries if digest not in known]:
            yield TrustError(
                "STO-K063", f"{part.part} holds a library {missing[0]} without a file"
            )
            continue
        if part.libraries:
            _check_fits(part, [known[digest] for digest in part.libraries])
        if listed.setdefault(part.flavor, part.libraries) != part.libraries:
            yield TrustError(
                "STO-K063", f"{part.part} holds other libraries for another platform"
            )


def _check_fits(part: PartFile, libraries: list[Library]) -> None:
    """Raise ``STO-P001`` or ``STO-K063`` where volunteers would refuse the flavor's tasks."""
    level = next((one for one in load_levels() if one.name == part.level), None)
    if level is None:
        raise TrustError("STO-K063", f"{part.part} is made for no known level")
    if add_libraries(level, libraries).libraries != part.libraries:
        raise TrustError(
            "STO-K063", f"{part.part} names its libraries in another order"
        )


def _check_policy_flavors(
    proposal: Proposal, parts: tuple[PartFile, ...]
) -> Iterator[StoiloError]:
    """As many people sign for a flavor, a program, whichever role names it."""
    root, targets = proposal.newest("root"), proposal.newest("targets")
    flavors = [one for one in parts if one.role == "policy"]
    if not flavors or root is None or targets is None:
        return
    needed = role_set(open_root(root).signed, "targets").threshold
    signing = role_set(open_targets(targets).signed, "policy").threshold
    marks = open_root(root).signed.unrecognized_fields
    if signing < needed and DEVELOPMENT_MARK not in marks:
        yield TrustError(
            "STO-K063",
            f"{flavors[0].part} is a program: {needed} must sign for the policy role, "
            f"as for targets, and {signing} do",
            hint="once, in a ceremony before: --role policy --in KEY.pub --threshold "
            f"{needed}",
        )


def admits_until(proposal: Proposal, now: int) -> int:
    """Return until when work can be admitted from `now` on, Unix seconds; 0: it cannot.

    Withdrawn epochs do not count: whoever withdraws the present one sees that no work can
    be admitted before the next begins. Raises ``STO-K013``, ``STO-K052``.
    """
    denied = read_list(proposal.target, RevocationFile)
    usable = (
        (one.not_before, one.not_after)
        for one in read_epoch_files(proposal.target)
        if one.epoch >= denied.min_epoch and one.epoch not in denied.epochs
    )
    return open_until(usable, now)

"""A development root: every key of a project, made on one machine, and marked as such.

It has the same shape as a real release (root 2-of-3, targets 2-of-3, one online key, gate
epochs certified ahead by a delegated role, others for revocation, policy and reviewers), so
that nothing changes but the ceremony. It protects nobody, because its offline keys lie beside
the online ones: the root is marked and release-built verifiers refuse it (I3).

    DIR/root.json            what a volunteer's --root FILE is
    DIR/metadata, targets    public, see `stoilo.executor.verifier.trust.read_release`
    DIR/online/*.pem         gate epochs, log, snapshot/timestamp, adding revocations:
                             the signer's
    DIR/offline/*.pem        root, targets, gate, policy, revocation, reviewers: nobody's at
                             run time
    DIR/state                the signer's memory
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from tuf.api.metadata import Root, TargetFile, Targets

from stoilo.audit.format.note import KeyType, private_vkey, render_vkey
from stoilo.audit.format.policy import LogPolicy
from stoilo.audit.witness.client import NO_WITNESSES, with_log, without_urls
from stoilo.core.errors import TrustError, UsageError
from stoilo.executor.verifier.targets import (
    EpochFile,
    EpochsFile,
    FloorsFile,
    InstalledRelease,
    PolicyFile,
    ProjectFile,
    ReviewerFile,
    RevocationFile,
    TrustedRelease,
    is_part_file,
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
    read_release,
)
from stoilo.signer.ceremony.requests import next_log_policy
from stoilo.signer.key_files import (
    ensure_key,
    make_private_directory,
    write_private_file,
)
from stoilo.signer.process.checkpoint_memory import (
    LEDGER_FILE,
    CheckpointLedger,
    create_ledger,
)
from stoilo.signer.process.online_keys import (
    CLOCK_MARGIN_S,
    DAY_S,
    EPOCH_LIFE_S,
    EPOCH_STEP_S,
    REQUESTED_FILE,
    epochs_ahead,
    last_epoch,
    make_epoch,
)
from stoilo.signer.repository import (
    Delegation,
    RoleKeys,
    newest,
    newest_file,
    publish_root,
    publish_targets,
    publishing,
    refresh_online_metadata,
    store_target,
)
from stoilo.signer.roles import DELEGATED

EPOCHS_AHEAD: Final = 2

_EPOCH_NAME: Final = re.compile(r"gate/[0-9]{1,10}\.json")

_NO_FILES: Final[Mapping[str, bytes]] = {}

ONLINE_REVOCATION_KEY: Final = "revocation.pem"
"""File, below ``online``, of the key that may add to the offline list."""


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


def create_development_root(
    directory: Path,
    origin: str,
    now: int,
    *,
    installed: InstalledRelease,
    policies: Sequence[str] = (),
    reviewed: Mapping[str, Sequence[str]] | None = None,
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
    online = make_private_directory(directory / "online")
    make_private_directory(directory / "offline")
    state = make_private_directory(directory / "state")
    _check_origin(directory, origin)
    with publishing(directory):
        accepted = _accept(directory, policies, reviewed or {})
        certified = _Certified(origin, installed, witnesses, level_files)
        _publish_all(directory, certified, accepted, now)
        _sign_online(directory, now)
    root_file = directory / "root.json"
    if not root_file.exists():
        # Only with the first root: a memory that was lost later must not begin
        # anew.
        create_ledger(state / LEDGER_FILE, origin)
        first = directory / "metadata" / "1.root.json"
        write_private_file(root_file, first.read_bytes())
    log_key = ensure_key(online / "log.pem")
    trust = load_trust(
        read_release(directory), root_file.read_bytes(), now, installed=installed
    )
    return DevelopmentRoot(
        directory=directory,
        root_file=root_file,
        origin=origin,
        log_vkey=render_vkey(private_vkey(origin, KeyType.ED25519, log_key.key)),
        trust=trust,
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
            hint="people sign such a change: stoilo release request, rotate or revoke",
        )


def certify_parts(
    directory: Path,
    files: Mapping[str, Path],
    now: int,
    *,
    floors: FloorsFile | None = None,
) -> None:
    """Publish launcher, verifier or flavors into a development root.

    Args:
        directory: the release, made by `create_development_root`.
        files: target name (``verifier/x86_64-linux.tar``, ``.json``, ``.tree`` …) → file;
            all of a part belong into one call. Parts published earlier stay.
        now: Unix seconds.
        floors: the oldest parts that may still work; None leaves them as they are.

    Raises:
        TrustError: STO-K014 when the release has no targets.
        UsageError: STO-K082 when a name is not one of a part.
    """
    for name in files:
        if not is_part_file(name):
            raise UsageError("STO-K082", f"{name[:80]!r} is not a file of a part")
    with publishing(directory):
        # Parts published earlier stay named: hosts may still be fetching them.
        infos = dict(_named(directory))
        infos |= {
            name: store_target(directory, name, file) for name, file in files.items()
        }
        changed = {} if floors is None else {FLOORS_FILE: msgspec.json.encode(floors)}
        kept = {name: info for name, info in infos.items() if name not in changed}
        _publish_targets(directory, changed, kept, now)
        _sign_online(directory, now)


def revoke(directory: Path, denied: RevocationFile, now: int) -> None:
    """Publish `denied` by the revocation role's key, and fresh online metadata.

    Where it names no key that may add online, the directory's own stays.
    """
    key = offline_role(directory, "revocation")
    files = {REVOCATION_FILE: _with_online_key(directory, denied)}
    with publishing(directory):
        publish_targets(directory, "revocation", key, files, now)
        _sign_online(directory, now)


def offline_list(directory: Path) -> RevocationFile:
    """Return what the offline revocation role has published last."""
    data = newest_file(directory, "revocation", REVOCATION_FILE)
    if data is None:
        return RevocationFile()
    return read_target(data, RevocationFile, REVOCATION_FILE)


def publish_reviewers(directory: Path, named: ReviewerFile, now: int) -> None:
    """Publish who may review; the caller holds `publishing`."""
    files = {REVIEWERS_FILE: msgspec.json.encode(named)}
    role = offline_role(directory, "reviewers")
    publish_targets(directory, "reviewers", role, files, now)
    _sign_online(directory, now)


def certify_fresh_epoch(directory: Path, now: int) -> int:
    """Certify one more gate epoch, open now, by the gate role; returns its number.

    For when those certified ahead are withdrawn, because their keys were stolen too.
    """
    check_development(directory)
    with publishing(directory):
        epochs = published_epochs(directory)
        if not epochs:
            raise TrustError("STO-K014", "the release has no epochs")
        number = last_epoch(directory) + 1
        fresh = make_epoch(directory, number, now - CLOCK_MARGIN_S)
        publish_epochs(directory, [*epochs, fresh], now)
        _sign_online(directory, now)
    return number


def published_epochs(directory: Path) -> list[EpochFile]:
    """Return the epochs that the newest metadata certifies, by number."""
    current = newest(directory, "gate", Targets)
    names = () if current is None else current.signed.targets
    found = []
    for name in names:
        if _EPOCH_NAME.fullmatch(name):
            data = newest_file(directory, "gate", name) or b""
            found.append(read_target(data, EpochFile, name))
    return sorted(found, key=lambda epoch: epoch.epoch)


def log_policy_files(directory: Path, policy: LogPolicy, now: int) -> dict[str, bytes]:
    """Return the targets that say whom to believe about the log, by name.

    Args:
        directory: of the development root; its newest targets say what was in force.
        policy: to be in force from now on.
        now: Unix seconds.

    Raises:
        TrustError: ``STO-K014`` or ``STO-K028`` when what is there is damaged.
    """
    current = newest_file(directory, "targets", POLICY_FILE)
    history = newest_file(directory, "targets", HISTORY_FILE)
    path = directory / "state" / LEDGER_FILE
    size = CheckpointLedger(path).last.size if path.exists() else 0
    return next_log_policy(current, history, policy, now=now, size=size)


@dataclass(frozen=True, slots=True)
class _Certified:
    """What the offline targets role certifies; see `create_development_root`."""

    origin: str
    installed: InstalledRelease
    witnesses: LogPolicy
    level_files: Mapping[str, bytes]


def _publish_all(
    directory: Path, certified: _Certified, accepted: PolicyFile, now: int
) -> None:
    """Publish root, delegated roles and targets, each only where it changed."""
    offline = directory / "offline"
    online = RoleKeys((ensure_key(directory / "online" / "online.pem"),), 1)
    roles = {
        "root": role_keys(offline, "root", 3, threshold=2),
        "targets": role_keys(offline, "targets", 3, threshold=2),
        "snapshot": online,
        "timestamp": online,
    }
    publish_root(directory, roles, now, development=True)
    # Read, not made anew: a restart must not allow what was withdrawn.
    denied = _with_online_key(directory, offline_list(directory))
    named = newest_file(directory, "reviewers", REVIEWERS_FILE)
    delegated = {
        REVOCATION_FILE: denied,
        POLICIES_FILE: msgspec.json.encode(accepted),
        REVIEWERS_FILE: named or msgspec.json.encode(ReviewerFile()),
    }
    publish_epochs(directory, wanted_epochs(directory, now), now)
    for path, data in delegated.items():
        name = path.partition("/")[0]
        publish_targets(
            directory, name, offline_role(directory, name), {path: data}, now
        )
    files = _target_files(directory, certified, now)
    parts = {
        name: info
        for name, info in _named(directory).items()
        if name not in files and (is_part_file(name) or name == FLOORS_FILE)
    }
    _publish_targets(directory, files, parts, now)


def offline_role(directory: Path, name: str) -> RoleKeys:
    """Return the keys of a delegated role."""
    check_development(directory)
    return RoleKeys((ensure_key(directory / "offline" / f"{name}.pem"),), 1)


def role_keys(folder: Path, name: str, count: int, *, threshold: int) -> RoleKeys:
    """Return a role's keys, one file each."""
    check_development(folder.parent)
    files = (folder / f"{name}-{number}.pem" for number in range(1, count + 1))
    return RoleKeys(tuple(ensure_key(file) for file in files), threshold)


def publish_epochs(directory: Path, epochs: Sequence[EpochFile], now: int) -> None:
    """Publish the gate role, which certifies exactly `epochs`."""
    numbers = EpochsFile(tuple(epoch.epoch for epoch in epochs))
    files = {EPOCHS_FILE: msgspec.json.encode(numbers)} | {
        f"gate/{epoch.epoch}.json": msgspec.json.encode(epoch) for epoch in epochs
    }
    publish_targets(directory, "gate", offline_role(directory, "gate"), files, now)


def wanted_epochs(directory: Path, now: int) -> tuple[EpochFile, ...]:
    """Return the epochs to certify: those not long over, and enough ahead of `now`."""
    kept = [
        epoch
        for epoch in published_epochs(directory)
        if epoch.not_after > now - EPOCH_LIFE_S
    ]
    until = now + (EPOCHS_AHEAD - 1) * EPOCH_STEP_S - DAY_S
    return epochs_ahead(directory, now, kept, until)


def _with_online_key(directory: Path, denied: RevocationFile) -> bytes:
    """Return the file's bytes, naming the online revocation key if it names none."""
    # Without a key that may add, nothing could be withdrawn before the next start.
    if not denied.keys:
        online = ensure_key(directory / "online" / ONLINE_REVOCATION_KEY)
        keys = (online.public.raw.hex(),)
        denied = msgspec.structs.replace(denied, keys=keys)
    return msgspec.json.encode(denied)


def _sign_online(directory: Path, now: int) -> None:
    refresh_online_metadata(
        directory, ensure_key(directory / "online" / "online.pem"), now
    )


def _accept(
    directory: Path, policies: Sequence[str], reviewed: Mapping[str, Sequence[str]]
) -> PolicyFile:
    """Return the policies to certify; what was said of earlier ones is kept."""
    data = newest_file(directory, "policy", POLICIES_FILE)
    earlier = read_target(data, PolicyFile, POLICIES_FILE).reviewed if data else {}
    known = earlier | {digest: tuple(levels) for digest, levels in reviewed.items()}
    # Tasks admitted under an earlier policy are still judged by its rules.
    kept = {digest: levels for digest, levels in known.items() if digest in policies}
    return PolicyFile(tuple(policies), kept)


def _check_origin(directory: Path, origin: str) -> None:
    """Refuse a directory that was made for another project."""
    data = newest_file(directory, "targets", PROJECT_FILE)
    known = (
        origin if data is None else read_target(data, ProjectFile, PROJECT_FILE).origin
    )
    if known != origin:
        raise TrustError("STO-K029", f"this root was made for {known!r}")


def _publish_targets(
    directory: Path,
    files: Mapping[str, bytes],
    kept: Mapping[str, TargetFile],
    now: int,
) -> None:
    """Publish the top-level targets."""
    offline = directory / "offline"
    publish_targets(
        directory,
        "targets",
        role_keys(offline, "targets", 3, threshold=2),
        files,
        now,
        delegations=_delegations(directory),
        kept=kept,
    )


def _named(directory: Path) -> Mapping[str, TargetFile]:
    """Return what the newest top-level targets name."""
    current = newest(directory, "targets", Targets)
    return {} if current is None else current.signed.targets


def _delegations(directory: Path) -> tuple[Delegation, ...]:
    """Return the roles that targets delegates, and what each may speak for."""
    return tuple(
        Delegation(name, offline_role(directory, name), f"{name}/*")
        for name in DELEGATED
    )


def _target_files(directory: Path, certified: _Certified, now: int) -> dict[str, bytes]:
    """Return what the offline targets role certifies, by name."""
    log_key = ensure_key(directory / "online" / "log.pem")
    vkey = render_vkey(private_vkey(certified.origin, KeyType.ED25519, log_key.key))
    installed = certified.installed
    project = ProjectFile(
        origin=certified.origin,
        levels=_accepted_levels(installed),
        languages=(installed.language_digest, *installed.languages),
    )
    levels = {
        f"levels/{name}.toml": data for name, data in certified.level_files.items()
    }
    policy = without_urls(with_log(certified.witnesses, vkey))
    return (
        {PROJECT_FILE: msgspec.json.encode(project)}
        | levels
        | log_policy_files(directory, policy, now)
    )


def _accepted_levels(installed: InstalledRelease) -> dict[str, tuple[str, ...]]:
    """Return the digests of the installed levels by name, in the package's order."""
    found: dict[str, tuple[str, ...]] = {}
    for level in installed.levels:
        found[level.name] = (*found.get(level.name, ()), level.digest)
    return found

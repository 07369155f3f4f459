"""A development root: every key of a project, made on one machine, and marked as such.

It has the same shape as a real release (root 2-of-3, targets 2-of-3, one online key, gate
epochs certified ahead, delegated roles for revocation and policy), so that nothing changes
but the ceremony. It protects nobody, because its offline keys lie beside the online ones:
the root is marked and release-built verifiers refuse it (I3).

    DIR/root.json            what a volunteer's --root FILE is
    DIR/metadata, targets    public, see `stoilo.executor.trust.read_release`
    DIR/online/*.pem         gate epochs, log, snapshot/timestamp: the signer's
    DIR/offline/*.pem        root, targets, policy, revocation, reviewer: nobody's at run time
    DIR/state                the signer's memory
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from stoilo.audit.note import KeyType, private_vkey, render_vkey
from stoilo.core.errors import TrustError
from stoilo.executor.release import (
    EpochFile,
    InstalledRelease,
    PolicyFile,
    ProjectFile,
    ReviewerFile,
    RevocationFile,
    TrustedRelease,
    read_target,
)
from stoilo.executor.trust import load_trust, read_release
from stoilo.signer.keyfiles import (
    ensure_key,
    make_private_directory,
    write_private_file,
)
from stoilo.signer.ledger import LEDGER_FILE, create_ledger
from stoilo.signer.repository import (
    Delegation,
    RoleKeys,
    newest_file,
    publish_root,
    publish_targets,
    publishing,
    refresh_online_metadata,
)

__all__ = ["DevelopmentRoot", "create_development_root", "revoke"]

DAY_S: Final = 24 * 3600
EPOCH_LIFE_S: Final = 28 * DAY_S
EPOCH_STEP_S: Final = 13 * DAY_S
EPOCHS_AHEAD: Final = 2
CLOCK_MARGIN_S: Final = 3600
MAX_PER_MINUTE: Final = 600_000


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
) -> DevelopmentRoot:
    """Make or renew a development root; call it at every start.

    Args:
        directory: made 0700; must not lie in a place that others can read.
        origin: the project's name, also its log's.
        now: Unix seconds.
        installed: levels and language layer to certify.
        policies: digests of the policies in force; empty certifies none by name.

    Raises:
        TrustError: STO-K003 for open modes, STO-K029 when made for another origin.
    """
    make_private_directory(directory)
    online = make_private_directory(directory / "online")
    make_private_directory(directory / "offline")
    state = make_private_directory(directory / "state")
    _check_origin(directory, origin)
    with publishing(directory):
        _publish_all(directory, origin, now, installed, policies)
        refresh_online_metadata(directory, ensure_key(online / "online.pem"), now)
    root_file = directory / "root.json"
    if not root_file.exists():
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


def revoke(directory: Path, denied: RevocationFile, now: int) -> None:
    """Publish `denied` by the revocation role's key, and fresh online metadata."""
    key = RoleKeys((ensure_key(directory / "offline" / "revocation.pem"),), 1)
    files = {"revocation/denied.json": msgspec.json.encode(denied)}
    online = ensure_key(directory / "online" / "online.pem")
    with publishing(directory):
        publish_targets(directory, "revocation", key, files, now)
        refresh_online_metadata(directory, online, now)


def _check_origin(directory: Path, origin: str) -> None:
    """Refuse a directory that was made for another project."""
    data = newest_file(directory, "targets", "project.json")
    if data is not None:
        known = read_target(data, ProjectFile, "project.json").origin
        if known != origin:
            raise TrustError("STO-K029", f"this root was made for {known!r}")


def _publish_all(
    directory: Path,
    origin: str,
    now: int,
    installed: InstalledRelease,
    policies: Sequence[str],
) -> None:
    """Publish root, delegated roles and targets, each only where it changed."""
    offline = directory / "offline"
    roles = {
        "root": _keys(offline, "root", 3, threshold=2),
        "targets": _keys(offline, "targets", 3, threshold=2),
        "snapshot": RoleKeys((ensure_key(directory / "online" / "online.pem"),), 1),
        "timestamp": RoleKeys((ensure_key(directory / "online" / "online.pem"),), 1),
    }
    publish_root(directory, roles, now, development=True)
    revocation = RoleKeys((ensure_key(offline / "revocation.pem"),), 1)
    policy = RoleKeys((ensure_key(offline / "policy.pem"),), 1)
    denied = newest_file(directory, "revocation", "revocation/denied.json")
    publish_targets(
        directory,
        "revocation",
        revocation,
        {"revocation/denied.json": denied or msgspec.json.encode(RevocationFile())},
        now,
    )
    accepted = msgspec.json.encode(PolicyFile(tuple(policies)))
    publish_targets(
        directory, "policy", policy, {"policy/accepted.json": accepted}, now
    )
    publish_targets(
        directory,
        "targets",
        roles["targets"],
        _target_files(directory, origin, now, installed),
        now,
        delegations=(
            Delegation("revocation", revocation, "revocation/*"),
            Delegation("policy", policy, "policy/*"),
        ),
    )


def _keys(folder: Path, name: str, count: int, *, threshold: int) -> RoleKeys:
    """Return a role's keys, one file each."""
    files = (folder / f"{name}-{number}.pem" for number in range(1, count + 1))
    return RoleKeys(tuple(ensure_key(file) for file in files), threshold)


def _target_files(
    directory: Path, origin: str, now: int, installed: InstalledRelease
) -> dict[str, bytes]:
    """Return what the offline targets role certifies, by name."""
    log_key = ensure_key(directory / "online" / "log.pem")
    vkey = render_vkey(private_vkey(origin, KeyType.ED25519, log_key.key))
    epochs = _epochs(directory, now)
    reviewer = ensure_key(directory / "offline" / "reviewer.pem")
    project = ProjectFile(
        origin=origin,
        epochs=tuple(epoch.epoch for epoch in epochs),
        levels={level.name: level.digest for level in installed.levels},
        languages=(installed.language_digest,),
    )
    files: dict[str, msgspec.Struct] = {
        "project.json": project,
        "reviewers.json": ReviewerFile((reviewer.public.raw.hex(),)),
        **{f"gate/{epoch.epoch}.json": epoch for epoch in epochs},
    }
    encoded = {name: msgspec.json.encode(record) for name, record in files.items()}
    return encoded | {"log/policy.txt": f"log {vkey}\nquorum none\n".encode()}


def _epochs(directory: Path, now: int) -> list[EpochFile]:
    """Return the epochs to certify: those not long over, and enough ahead of `now`."""
    epochs = [
        epoch
        for epoch in _published_epochs(directory)
        if epoch.not_after > now - EPOCH_LIFE_S
    ]
    if not epochs:
        last = _last_number(directory)
        epochs = [_make_epoch(directory, last + 1, now - CLOCK_MARGIN_S)]
    while epochs[-1].not_before < now + (EPOCHS_AHEAD - 1) * EPOCH_STEP_S - DAY_S:
        last_epoch = epochs[-1]
        start = max(last_epoch.not_before + EPOCH_STEP_S, now - CLOCK_MARGIN_S)
        epochs.append(_make_epoch(directory, last_epoch.epoch + 1, start))
    return epochs


def _make_epoch(directory: Path, number: int, start: int) -> EpochFile:
    """Return a new epoch's certificate, making its key."""
    key = ensure_key(directory / "online" / f"gate-{number}.pem")
    return EpochFile(
        epoch=number,
        keys=(key.public.raw.hex(),),
        threshold=1,
        not_before=start,
        not_after=start + EPOCH_LIFE_S,
        max_per_minute=MAX_PER_MINUTE,
    )


def _published_epochs(directory: Path) -> list[EpochFile]:
    """Return the epochs that the newest targets certify, by number."""
    project = newest_file(directory, "targets", "project.json")
    if project is None:
        return []
    found = []
    for number in sorted(read_target(project, ProjectFile, "project.json").epochs):
        name = f"gate/{number}.json"
        data = newest_file(directory, "targets", name)
        if data is None:
            raise TrustError("STO-K014", f"the release lacks {name}")
        found.append(read_target(data, EpochFile, name))
    return found


def _last_number(directory: Path) -> int:
    """Return the highest epoch that ever had a key here, 0 for none."""
    names = (path.stem for path in (directory / "online").glob("gate-*.pem"))
    return max((int(name.removeprefix("gate-")) for name in names), default=0)

"""A released project for tests: its people's keys in memory, its server's on the disk.

What a ceremony does on several machines happens here in one call, with real keys, real
metadata and the server's own online keys. For tests and benchmarks only: a project whose
offline keys were ever in one process is no released project.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
import msgspec
from tuf.api.metadata import TargetFile
from stoilo.audit.witness.client import NO_WITNESSES, with_log, without_urls
from stoilo.core.digests import content_digest
from stoilo.core.signatures import PrivateKey, parse_public_key
from stoilo.executor.verifier.targets import ArchiveFile, EpochFile, EpochsFile, InstalledRelease, PartFile, PolicyFile, ProjectFile, ReviewerFile, RevocationFile, TrustedRelease
from stoilo.executor.verifier.trust import EPOCHS_FILE, POLICIES_FILE, PROJECT_FILE, REVIEWERS_FILE, REVOCATION_FILE, load_trust
from stoilo.signer.development.root import log_policy_files
from stoilo.signer.key_files import write_private_file
from stoilo.signer.process.online_keys import (
    OnlineKeys,
    find_key,
    make_online_keys,
    renew_online_metadata,
)
from stoilo.signer.repository import (
    Delegation,
    RoleKeys,
    publish_root,
    publish_targets,
    publishing,
    store_target,
)
from stoilo.executor.verifier.targets import (
    ArchiveFile,
    EpochFile,
    EpochsFile,
    InstalledRelease,
    PartFile,
    PolicyFile,
    ProjectFile,
    ReviewerFile,
    RevocationFile,
    TrustedRelease,
)
from stoilo.executor.verifier.trust import (
    EPOCHS_FILE,
    POLICIES_FILE,
    PROJECT_FILE,
    REVIEWERS_FILE,
    REVOCATION_FILE,
    load_trust,
)



__all__ = ["DELEGATED", "ReleasedProject", "flavor_files"]

DELEGATED: Final = ("gate", "policy", "reviewers", "revocation")


def _people(count: int, threshold: int) -> RoleKeys:
    return RoleKeys(tuple(PrivateKey.generate() for _ in range(count)), threshold)


@dataclass
class ReleasedProject:
    """A release in ``DIR/keys``, published and published again.

    Attributes:
        directory: ``DIR/keys``.
        origin: the project's name.
        installed: levels and language layer to certify.
        policies: digests of the accepted policies.
        denied: what the offline role withdraws, but for the online key's name.
        parts: targets of launchers, verifiers and flavors: name → file.
        epochs: how many gate epochs to have made and certified.
        online: what the server asked for last.
        roles: the people's keys, by role.
    """

    directory: Path
    origin: str
    installed: InstalledRelease
    policies: Sequence[str] = ()
    denied: RevocationFile = field(default_factory=RevocationFile)
    parts: Mapping[str, Path] = field(default_factory=dict)
    epochs: int = 2
    online: OnlineKeys | None = None
    roles: Mapping[str, RoleKeys] = field(
        default_factory=lambda: {
            "root": _people(3, 2),
            "targets": _people(3, 2),
            **{name: _people(1, 1) for name in DELEGATED},
        }
    )

    def make_online(self, now: int, *, replace: Sequence[str] = ()) -> OnlineKeys:
        """Let the server make its keys, as `stoilo release online-keys` does."""
        self.online = make_online_keys(
            self.directory, self.origin, now, epochs=self.epochs, replace=replace
        )
        return self.online

    def publish(self, now: int, *, online_too: bool = True) -> None:
        """Sign and publish what has changed; snapshot and timestamp if `online_too`."""
        online = self.online or self.make_online(now)
        with publishing(self.directory):
            publish_root(self.directory, self._root_roles(), now, development=False)
            self._publish_delegated(online, now)
            self._publish_targets(online, now)
        first = self.directory / "metadata" / "1.root.json"
        if not (self.directory / "root.json").exists():
            write_private_file(self.directory / "root.json", first.read_bytes())
        if online_too:
            renew_online_metadata(self.directory, now)

    def trust(self, now: int) -> TrustedRelease:
        """Verify the release as a release-built verifier would."""
        root = (self.directory / "root.json").read_bytes()
        return load_trust(
            self.directory, root, now, installed=self.installed, release_build=True
        )

    def _root_roles(self) -> dict[str, RoleKeys]:
        """Return the root's roles; the tests' shortcut: it signs with the online key."""
        key = RoleKeys((self._online_key(),), 1)
        people = {name: self.roles[name] for name in ("root", "targets")}
        return {**people, "snapshot": key, "timestamp": key}

    def _online_key(self) -> PrivateKey:
        """Return the online key asked for last, certified by this root or the next."""
        wanted = "" if self.online is None else self.online.online
        return find_key(self.directory, "online", {parse_public_key(wanted)})

    def _publish_delegated(self, online: OnlineKeys, now: int) -> None:
        epochs: Sequence[EpochFile] = online.epochs
        denied = msgspec.structs.replace(self.denied, keys=(online.revocation,))
        files: dict[str, dict[str, msgspec.Struct]] = {
            "gate": {
                EPOCHS_FILE: EpochsFile(tuple(one.epoch for one in epochs)),
                **{f"gate/{one.epoch}.json": one for one in epochs},
            },
            "policy": {POLICIES_FILE: PolicyFile(tuple(self.policies))},
            "reviewers": {REVIEWERS_FILE: ReviewerFile()},
            "revocation": {REVOCATION_FILE: denied},
        }
        for role, content in files.items():
            encoded = {name: msgspec.json.encode(one) for name, one in content.items()}
            publish_targets(self.directory, role, self.roles[role], encoded, now)

    def _publish_targets(self, online: OnlineKeys, now: int) -> None:
        policy = without_urls(with_log(NO_WITNESSES, online.log_vkey))
        project = ProjectFile(
            self.origin,
            {level.name: (level.digest,) for level in self.installed.levels},
            (self.installed.language_digest,),
        )
        files = {PROJECT_FILE: msgspec.json.encode(project)}
        files |= log_policy_files(self.directory, policy, now)
        kept: dict[str, TargetFile] = {
            name: store_target(self.directory, name, file)
            for name, file in self.parts.items()
        }
        publish_targets(
            self.directory,
            "targets",
            self.roles["targets"],
            files,
            now,
            delegations=tuple(
                Delegation(name, self.roles[name], f"{name}/*") for name in DELEGATED
            ),
            kept=kept,
        )


def flavor_files(
    folder: Path,
    name: str,
    flavor: str,
    *,
    level: str = "",
    platform: str = "x86_64-linux",
    archive: bytes = b"an archive",
) -> dict[str, Path]:
    """Write the files of one flavor below `folder` (not a real tree); target → file."""
    tree = b"stoilo-tree/1 %s %s\n" % (name.encode(), platform.encode())
    folder.mkdir(parents=True, exist_ok=True)
    part = PartFile(
        format="stoilo-part/1",
        part=name,
        platform=platform,
        version="1",
        serial=1,
        archive=ArchiveFile(
            f"{platform}.tar.xz", len(archive), content_digest(archive)
        ),
        tree=content_digest(tree),
        python="3.11",
        flavor=flavor,
        level=level or name,
    )
    contents = {
        ".tar.xz": archive,
        ".tree": tree,
        ".json": msgspec.json.encode(part),
    }
    files = {}
    for suffix, data in contents.items():
        path = folder / f"{name}-{platform}{suffix}"
        path.write_bytes(data)
        files[f"flavor/{name}/{platform}{suffix}"] = path
    return files

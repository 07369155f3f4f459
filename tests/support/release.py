"""A released project for tests: its people's keys in memory, its server's on the disk.

What a ceremony does on several machines happens here in one call, with real keys, real
metadata and the server's own online keys. For tests and benchmarks only: a project whose
offline keys were ever in one process is no released project.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
from securesystemslib.signer import CryptoSigner

from stoilo.audit.format.policy import render_policy
from stoilo.audit.witness.client import NO_WITNESSES, with_log, without_urls
from stoilo.core.digests import content_digest
from stoilo.core.signatures import PrivateKey
from stoilo.executor.verifier.targets import (
    ArchiveFile,
    FloorsFile,
    PartFile,
    PolicyFile,
    ProjectFile,
    ReviewerFile,
    RevocationFile,
    TrustedRelease,
)
from stoilo.executor.verifier.trust import (
    POLICY_FILE,
    InstalledRelease,
    load_trust,
)
from stoilo.flavors.packing import hash_file
from stoilo.signer.ceremony.base_release import open_published, roles_ending
from stoilo.signer.ceremony.key_holders import KeyHolder, RoleSet
from stoilo.signer.ceremony.lists import list_target
from stoilo.signer.ceremony.proposal import (
    Changes,
    NewTarget,
    Proposal,
    amend_proposal,
    first_proposal,
    next_proposal,
)
from stoilo.signer.ceremony.requests import epoch_targets, online_role, take_online_keys
from stoilo.signer.ceremony.signatures import add_signature
from stoilo.signer.key_files import read_private_key
from stoilo.signer.process.online_keys import (
    OnlineKeys,
    make_online_keys,
    renew_online_metadata,
)
from stoilo.signer.release_pack import read_release
from stoilo.signer.repository import (
    publishing,
    refresh_online_metadata,
    release_writer,
)

__all__ = [
    "DELEGATED",
    "ReleasedProject",
    "RoleKeys",
    "certify_parts",
    "flavor_files",
    "large_target",
    "write_signed",
]

DELEGATED: Final = ("gate", "policy", "reviewers", "revocation")


@dataclass(frozen=True)
class RoleKeys:
    """A role's signing keys and how many of them must sign."""

    keys: tuple[PrivateKey, ...]
    threshold: int

    def holders(self, role: str) -> RoleSet:
        """Return who holds them, under names of their own."""
        named = (
            KeyHolder(f"{role}-{place}", key.public)
            for place, key in enumerate(self.keys)
        )
        return RoleSet(tuple(named), self.threshold)


def _people(count: int, threshold: int) -> RoleKeys:
    return RoleKeys(tuple(PrivateKey.generate() for _ in range(count)), threshold)


def write_signed(
    directory: Path, proposal: Proposal, keys: Mapping[str, Sequence[PrivateKey]]
) -> None:
    """Sign a proposal with `keys`, by role, and publish it; nobody looks at it."""
    files = release_writer(directory, public=False)
    for one in proposal.targets:
        files.write(f"targets/{one.stored}", one.content)
    for file in proposal.metadata:
        signers = (CryptoSigner(key.key) for key in keys[file.role])
        files.write(f"metadata/{file.name}", add_signature(file, *signers).data)


def large_target(name: str, path: Path) -> NewTarget:
    """Return the file at `path` as a target, without reading it into memory."""
    digest, size = hash_file(path)
    return NewTarget(name, digest, size, path)


def certify_parts(
    directory: Path,
    files: Mapping[str, Path],
    now: int,
    *,
    floors: FloorsFile | None = None,
) -> None:
    """Publish files of parts into a development root as they are, checked by nobody."""
    put = [NewTarget.of(*one) for one in _small(files)]
    put += [large_target(*one) for one in files.items() if not one[0].endswith("json")]
    put += [] if floors is None else [list_target(floors)]
    offline = [
        read_private_key(directory / "offline" / f"targets-{n}.pem") for n in (1, 2)
    ]
    proposal = next_proposal(open_published(directory), Changes(tuple(put)), now)
    with publishing(directory):
        write_signed(directory, proposal, {"targets": offline})
        online = read_private_key(directory / "online" / "online.pem")
        refresh_online_metadata(directory, online, now)


def _small(files: Mapping[str, Path]) -> Iterator[tuple[str, bytes]]:
    for name, path in files.items():
        if name.endswith("json"):
            yield name, path.read_bytes()


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
        root_file = self.directory / "root.json"
        keys = {name: role.keys for name, role in self.roles.items()}
        with publishing(self.directory):
            if root_file.exists():
                write_signed(self.directory, self._next(online, now), keys)
            else:
                write_signed(self.directory, self._first(online, now), keys)
                first = self.directory / "metadata" / "1.root.json"
                release_writer(self.directory, public=False).write(
                    "root.json", first.read_bytes()
                )
        if online_too:
            renew_online_metadata(self.directory, now)

    def trust(self, now: int) -> TrustedRelease:
        """Verify the release as a release-built verifier would."""
        root = (self.directory / "root.json").read_bytes()
        return load_trust(
            read_release(self.directory),
            root,
            now,
            installed=self.installed,
            release_build=True,
        )

    def _first(self, online: OnlineKeys, now: int) -> Proposal:
        roles = {name: role.holders(name) for name, role in self.roles.items()}
        server = online_role(online)
        roles |= {"snapshot": server, "timestamp": server}
        return first_proposal(roles, tuple(self._targets(online)), now)

    def _next(self, online: OnlineKeys, now: int) -> Proposal:
        base = open_published(self.directory)
        put = tuple(self._targets(online))
        named = {one.name for one in put}
        gone = tuple(name for name in base.names() if name not in named)
        renew = roles_ending(base, now)
        keys = take_online_keys(Proposal(base), online)
        changes = Changes(put, gone, renew=renew, keys=keys.keys)
        return amend_proposal(Proposal(base), changes, now)

    def _targets(self, online: OnlineKeys) -> Iterator[NewTarget]:
        levels: dict[str, tuple[str, ...]] = {
            level.name: (level.digest,) for level in self.installed.levels
        }
        languages = (self.installed.language_digest,)
        policy = without_urls(with_log(NO_WITNESSES, online.log_vkey))
        denied = msgspec.structs.replace(self.denied, keys=(online.revocation,))
        yield list_target(ProjectFile(self.origin, levels, languages))
        yield NewTarget.of(POLICY_FILE, render_policy(policy))
        yield from epoch_targets(online.epochs)
        yield list_target(PolicyFile(tuple(self.policies)))
        yield list_target(ReviewerFile())
        yield list_target(denied)
        for name, file in self.parts.items():
            if name.endswith("json"):
                yield NewTarget.of(name, file.read_bytes())
            else:
                yield large_target(name, file)


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

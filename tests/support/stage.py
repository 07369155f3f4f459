"""A whole released project in memory: people, keys, builds, ceremonies, a log. For tests.

Everything is real but the people: keys are made and kept here, in one process, which is
exactly what a ceremony is there to avoid.
"""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import msgspec

from stoilo.audit.format.facts import ReleaseRecord
from stoilo.audit.format.merkle import (
    Checkpoint,
    inclusion_proof,
    leaf_hash,
    range_root,
    render_checkpoint,
)
from stoilo.audit.format.policy import render_policy
from stoilo.audit.format.proof import Proof, render_proof
from stoilo.audit.format.records import (
    RELEASE_PROOF_FILE,
    RELEASE_RECORD_FILE,
    record_leaf,
    render_record,
    render_release_proof,
)
from stoilo.audit.witness.client import without_urls
from stoilo.core.digests import content_digest
from stoilo.core.frozen_tree import Tree, render_tree, tree_digest
from stoilo.core.signatures import PrivateKey
from stoilo.executor.verifier.targets import (
    ArchiveFile,
    BuilderFile,
    BuilderKey,
    EpochFile,
    EpochsFile,
    FloorsFile,
    PartFile,
    PolicyFile,
    ProjectFile,
    ReviewerFile,
    RevocationFile,
    part_target,
)
from stoilo.executor.verifier.trust import (
    BUILDERS_FILE,
    EPOCHS_FILE,
    FLOORS_FILE,
    POLICIES_FILE,
    POLICY_FILE,
    PROJECT_FILE,
    REVIEWERS_FILE,
    REVOCATION_FILE,
    Built,
    InstalledRelease,
    load_trust,
    render_built,
)
from stoilo.flavors.packing import XzWriter, describe_tree, write_archive
from stoilo.signer.attestations import BuildInputs, attestation_path, make_attestation
from stoilo.signer.ceremony.base_release import BaseRelease, open_base
from stoilo.signer.ceremony.boinc_files import sign_boinc_files
from stoilo.signer.ceremony.folder import Ceremony, CeremonyFile
from stoilo.signer.ceremony.key_holders import KeyHolder, RoleSet
from stoilo.signer.ceremony.proposal import (
    Changes,
    NewTarget,
    Proposal,
    first_proposal,
    next_proposal,
)
from stoilo.signer.ceremony.publication import publish
from stoilo.signer.ceremony.signatures import sign_proposal
from stoilo.signer.ceremony.transcript import TranscriptLine, render_transcript
from stoilo.signer.offline_keys import Hardness, OfflineKey, create_key, open_key
from stoilo.signer.published.evidence import metadata_rows, part_rows
from stoilo.signer.release_pack import read_release
from stoilo.signer.repository import refresh_online_metadata
from tests.support.faulty_log import LogKey
from tests.support.gate import INSTALLED, NOW
from tests.support.memory_tree import MemoryTree

__all__ = [
    "EASY",
    "PASSPHRASE",
    "PLATFORM",
    "ReleaseStage",
    "make_flavor",
    "make_offline_key",
    "make_verifier",
    "write_build",
]

PLATFORM: Final = "x86_64-linux"
PASSPHRASE: Final = "six words drawn by dice, no fewer"
EASY: Final = Hardness(memory_kib=64, passes=1, lanes=1)
"""What a guess costs where nothing is protected."""

DAY_S: Final = 24 * 3600
_PEOPLE: Final = {
    "root": ("ada", "bo", "cy"),
    "targets": ("ada", "bo", "cy"),
    "gate": ("gil",),
    "policy": ("pia",),
    "reviewers": ("rex",),
    "revocation": ("vera",),
}


def make_offline_key(role: str, name: str) -> OfflineKey:
    """Return an opened offline key, easy to guess."""
    return open_key(create_key(role, name, PASSPHRASE, hardness=EASY)[0], PASSPHRASE)


@dataclass
class ReleaseStage:
    """A project whose people sign whatever is proposed.

    Attributes:
        origin: of project and log.
        installed: what the release certifies.
        now: Unix seconds; move it to let time pass.
        rehearsal: whether the root is one of a staging project.
        keys: role → its offline keys; two of three sign for root and targets.
        online: key of snapshot and timestamp.
        builders: names and keys.
        log: the project's log, one leaf a release.
    """

    origin: str = "project.example/log"
    installed: InstalledRelease = INSTALLED
    now: int = NOW
    rehearsal: bool = False
    keys: dict[str, tuple[OfflineKey, ...]] = field(default_factory=dict)
    online: PrivateKey = field(default_factory=PrivateKey.generate)
    builders: dict[str, PrivateKey] = field(default_factory=dict)
    log: LogKey = field(init=False)
    boinc: OfflineKey = field(init=False)
    _serial: int = 0

    def __post_init__(self) -> None:
        """Make everybody's key."""
        for role, names in _PEOPLE.items():
            keys = tuple(make_offline_key(role, name) for name in names)
            self.keys.setdefault(role, keys)
        for name in ("bea", "ben"):
            self.builders.setdefault(name, PrivateKey.generate())
        self.log = LogKey(self.origin)
        self.boinc = make_offline_key("boinc", "boris")

    def first_ceremony(
        self, files: Mapping[str, bytes | Path] | None = None
    ) -> Ceremony:
        """Return the unsigned ceremony of a first release with `files` besides its own."""
        put = tuple(_new_target(name, data) for name, data in (files or {}).items())
        proposal = first_proposal(
            self._role_sets(),
            (*self._own_targets(), *put),
            self.now,
            rehearsal=self.rehearsal,
        )
        return self._ceremony(proposal)

    def next_ceremony(self, directory: Path, changes: Changes) -> Ceremony:
        """Return the unsigned ceremony that makes `changes` to a published release."""
        current = open_base(read_release(directory))
        return self._ceremony(next_proposal(current, changes, self.now))

    def make_parts(
        self, folder: Path, root: bytes, *flavors: str
    ) -> dict[str, bytes | Path]:
        """Return launcher, verifier and flavors as targets, tiny ones with a new serial.

        Args:
            folder: new files go below it.
            root: of the release, which the verifier is built to know.
            flavors: names of flavors, of those that `make_flavor` can make.
        """
        self._serial += 1
        built = Built(
            format="stoilo-built/1",
            part="verifier",
            platform=PLATFORM,
            version=f"0.{self._serial}",
            serial=self._serial,
            commit="",
            root=base64.b64encode(root).decode(),
            origin=self.origin,
            rehearsal=self.rehearsal,
            development=self.rehearsal,
        )
        files = make_verifier(folder / f"verifier-{self._serial}", built)
        for name in flavors:
            files |= make_flavor(folder / f"{name}-{self._serial}", name, self._serial)
        return files

    def put(self, files: Mapping[str, bytes | Path]) -> Changes:
        """Return the changes that publish `files`, by target name."""
        return Changes(put=tuple(_new_target(*one) for one in files.items()))

    def attest(
        self, files: Mapping[str, bytes | Path]
    ) -> tuple[tuple[str, bytes], ...]:
        """Return every builder's attestation of the parts in `files`."""
        rows = []
        for name, data in files.items():
            if name.endswith(f"{PLATFORM}.json") and isinstance(data, bytes):
                part = msgspec.json.decode(data, type=PartFile)
                for key in self.builders.values():
                    path = attestation_path(part, key.public).removeprefix("builds/")
                    rows.append((path, make_attestation(part, BuildInputs(), key)))
        return tuple(rows)

    def sign(self, ceremony: Ceremony) -> Ceremony:
        """Return `ceremony` signed by enough people, and by BOINC's key where it must."""
        proposal = ceremony.proposal
        for file in proposal.metadata:
            for key in self.keys[file.role][:2]:
                proposal = sign_proposal(proposal, key)
        signed = replace(ceremony, proposal=proposal)
        line = TranscriptLine(act="sign", time=self.now, proposal=ceremony.digest)
        return replace(
            sign_boinc_files(signed, self.boinc.boinc()),
            transcript=render_transcript([line]),
        )

    def publish(self, directory: Path, ceremony: Ceremony) -> BaseRelease:
        """Sign and publish `ceremony`, then renew the online metadata and log it."""
        current = publish(self.sign(ceremony), directory, self.now)
        refresh_online_metadata(directory, self.online, self.now)
        self.write_log_proof(directory)
        return current

    def force(self, directory: Path, ceremony: Ceremony) -> None:
        """Sign and write `ceremony` as people would who look at nothing; then as before."""
        signed = self.sign(ceremony)
        rows = [
            *(
                (f"targets/{one.stored}", one.content)
                for one in signed.proposal.targets
            ),
            *((f"metadata/{one.name}", one.data) for one in signed.proposal.metadata),
            *((f"builds/{name}", data) for name, data in signed.builds),
            *((f"boinc/{name}", data) for name, data in signed.boinc),
            ("transcript.jsonl", signed.transcript),
        ]
        write_build(directory, dict(rows))
        refresh_online_metadata(directory, self.online, self.now)
        self.write_log_proof(directory)

    def write_log_proof(self, directory: Path) -> None:
        """Log the release as it lies in `directory` and write record and proof beside it."""
        record = render_record(self._record(directory))
        leaf = record_leaf(record, "1")
        tree = MemoryTree([leaf_hash(b"another leaf"), leaf_hash(leaf)])
        checkpoint = Checkpoint(self.origin, 2, range_root(0, 2, tree.node))
        note = self.log.sign(render_checkpoint(checkpoint))
        proof = render_proof(Proof(1, tuple(inclusion_proof(1, 2, tree.node)), note))
        (directory / RELEASE_RECORD_FILE).write_bytes(record)
        (directory / RELEASE_PROOF_FILE).write_bytes(render_release_proof(proof, leaf))

    def root(self, directory: Path) -> bytes:
        """Return the first root: what a volunteer got from elsewhere."""
        return (directory / "metadata" / "1.root.json").read_bytes()

    def _ceremony(self, proposal: Proposal) -> Ceremony:
        base = "" if proposal.base is None else proposal.base.digest
        about = CeremonyFile(
            origin=self.origin, rehearsal=self.rehearsal, created=self.now, base=base
        )
        return Ceremony(about, proposal)

    def _record(self, directory: Path) -> ReleaseRecord:
        files = read_release(directory)
        root = self.root(directory)
        trust = load_trust(files, root, self.now, installed=self.installed)
        text = directory / "transcript.jsonl"
        return ReleaseRecord(
            origin=self.origin,
            time=self.now,
            root=trust.root_version,
            targets=trust.targets_version,
            metadata=metadata_rows(files),
            parts=part_rows(trust),
            transcript=content_digest(text.read_bytes()) if text.exists() else "",
        )

    def _role_sets(self) -> dict[str, RoleSet]:
        sets = {
            role: RoleSet(
                tuple(KeyHolder(key.name, key.ed25519().public) for key in keys),
                2 if len(keys) > 1 else 1,
            )
            for role, keys in self.keys.items()
        }
        online = RoleSet((KeyHolder("server", self.online.public),), 1)
        return {**sets, "snapshot": online, "timestamp": online}

    def _own_targets(self) -> tuple[NewTarget, ...]:
        """Return the small targets that every release has."""
        epoch = EpochFile(
            epoch=1,
            keys=(PrivateKey.generate().public.raw.hex(),),
            threshold=1,
            not_before=self.now - DAY_S,
            not_after=self.now + 27 * DAY_S,
            max_per_minute=1000,
        )
        builders = BuilderFile(
            tuple(
                BuilderKey(key.public.raw.hex(), name)
                for name, key in self.builders.items()
            ),
            2,
        )
        records: dict[str, msgspec.Struct] = {
            PROJECT_FILE: ProjectFile(
                origin=self.origin,
                levels={one.name: (one.digest,) for one in self.installed.levels},
                languages=(self.installed.language_digest,),
            ),
            FLOORS_FILE: FloorsFile(),
            BUILDERS_FILE: builders,
            EPOCHS_FILE: EpochsFile((1,)),
            "gate/1.json": epoch,
            POLICIES_FILE: PolicyFile(),
            REVIEWERS_FILE: ReviewerFile(),
            REVOCATION_FILE: RevocationFile(),
        }
        targets = [
            NewTarget.of(name, msgspec.json.encode(one))
            for name, one in records.items()
        ]
        policy = render_policy(without_urls(self.log.policy))
        return (*targets, NewTarget.of(POLICY_FILE, policy))


def make_verifier(folder: Path, built: Built) -> dict[str, bytes | Path]:
    """Return the targets of a tiny verifier and of the launcher that starts it."""
    tree = {
        "stoilo-verifier": b"a verifier",
        "_internal/stoilo/executor/verifier/built.json": render_built(built),
    }
    files = _make_tree(folder, "verifier", tree, built.serial)
    record = files[f"verifier/{PLATFORM}.json"]
    assert isinstance(record, bytes)
    verifier = msgspec.json.decode(record, type=PartFile)
    program = (
        f"\x7fELF\nstoilo-launcher/1 {PLATFORM} {built.version} {built.serial} "
        f"{verifier.archive.sha256} {verifier.archive.size} {verifier.tree}\n"
    ).encode()
    target = f"launcher/{PLATFORM}"
    name = Path(f"stoilo-launcher-{PLATFORM}")
    part = _part("launcher", built.serial, name, program)
    return {**files, target: program, f"{target}.json": msgspec.json.encode(part)}


def make_flavor(folder: Path, name: str, serial: int) -> dict[str, bytes | Path]:
    """Return the targets of a tiny flavor."""
    return _make_tree(folder, name, {"stoilo-runtime": b"a runtime"}, serial)


def _make_tree(
    folder: Path, name: str, tree_files: Mapping[str, bytes], serial: int
) -> dict[str, bytes | Path]:
    """Return the targets of a tiny frozen tree; its archive lies in `folder`."""
    for inside, data in {**tree_files, "_internal/serial": b"%d" % serial}.items():
        (folder / "tree" / inside).parent.mkdir(parents=True, exist_ok=True)
        (folder / "tree" / inside).write_bytes(data)
    target = part_target(name, PLATFORM)
    sbom = b'{"bomFormat":"CycloneDX","version":%d}\n' % serial
    tree = describe_tree(folder / "tree", name, PLATFORM)
    archive = _archive(folder / "tree", tree, compressed=name != "verifier")
    suffix = ".tar" if name == "verifier" else ".tar.xz"
    path = folder / f"{name}-{PLATFORM}{suffix}"
    path.write_bytes(archive)
    manifest = render_tree(tree)
    part = _part(name, serial, path, archive, tree=tree_digest(manifest))
    part = msgspec.structs.replace(part, sbom=content_digest(sbom), python="3.11")
    files: dict[str, bytes | Path] = {
        f"{target}{suffix}": path,
        f"{target}.tree": manifest,
        f"{target}.sbom.json": sbom,
    }
    if name != "verifier":
        about = b"requirements: []\nmodules: []\n"
        files[f"flavor/{name}/manifest.yaml"] = about
        part = msgspec.structs.replace(part, flavor=content_digest(about), level=name)
    return {**files, f"{target}.json": msgspec.json.encode(part)}


def write_build(folder: Path, files: Mapping[str, bytes | Path]) -> None:
    """Write targets below `folder` under their names, as a builder's output."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content if isinstance(content, bytes) else content.read_bytes()
        path.write_bytes(data)


def _archive(directory: Path, tree: Tree, *, compressed: bool) -> bytes:
    stream = io.BytesIO()
    if not compressed:
        write_archive(directory, tree, stream)
        return stream.getvalue()
    writer = XzWriter(stream)
    write_archive(directory, tree, writer)
    writer.close()
    return stream.getvalue()


def _part(
    name: str, serial: int, path: Path, data: bytes, *, tree: str = ""
) -> PartFile:
    digest = hashlib.sha256(data).hexdigest()
    return PartFile(
        format="stoilo-part/1",
        part=name,
        platform=PLATFORM,
        version=f"0.{serial}",
        serial=serial,
        archive=ArchiveFile(path.name, len(data), digest),
        tree=tree,
        lock=content_digest(b"a lock"),
    )


def _new_target(name: str, content: bytes | Path) -> NewTarget:
    if isinstance(content, bytes):
        return NewTarget.of(name, content)
    data = content.read_bytes()
    return NewTarget(name, content_digest(data), len(data), content)

"""I3: a thief of every online key replaces nothing that the offline keys certify.

He has the server's key folder of a released project, and its release directory. Whatever he
signs with those keys, a host refuses, whether it has seen the project before or holds only
the root. The control signs the very same change with the people's own keys.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from securesystemslib.signer import CryptoSigner
from tuf.api.metadata import (
    Metadata,
    MetaFile,
    Root,
    Signed,
    Snapshot,
    TargetFile,
    Targets,
    Timestamp,
)

from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError
from stoilo.core.signatures import PrivateKey
from stoilo.executor.verifier.trust import load_trust
from stoilo.signer.key_files import read_private_key
from stoilo.signer.release_pack import read_release
from stoilo.signer.repository import newest
from tests.support.gate import INSTALLED, NOW
from tests.support.release import ReleasedProject, flavor_files

ORIGIN = "project.example/log"
CERTIFIED = {
    "the launcher": ("targets", "launcher/x86_64-linux"),
    "the verifier": ("targets", "verifier/x86_64-linux.tar"),
    "a flavor": ("targets", "flavor/pure/x86_64-linux.tar.xz"),
    "a level": ("targets", "levels/pure.toml"),
    "levels and languages": ("targets", "project.json"),
    "the log policy": ("targets", "log/policy.txt"),
    "the floors": ("targets", "executor/floors.json"),
    "the builders": ("targets", "builders/keys.json"),
    "the epochs": ("gate", "gate/epochs.json"),
    "an epoch's keys": ("gate", "gate/1.json"),
    "the policies": ("policy", "policy/accepted.json"),
    "a library": ("policy", "policy/library-aa.toml"),
    "the policy role's flavors": ("policy", "policy/flavor-aa.x86_64-linux.json"),
    "the reviewers": ("reviewers", "reviewers/keys.json"),
    "the withdrawals": ("revocation", "revocation/denied.json"),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> ReleasedProject:
    folder = tmp_path_factory.mktemp("i3")
    parts = flavor_files(folder / "parts", "pure", "f" * 64)
    made = ReleasedProject(folder / "keys", ORIGIN, INSTALLED, parts=parts)
    made.publish(NOW)
    return made


def stolen(project: ReleasedProject) -> list[PrivateKey]:
    """Return every private key that the server has."""
    files = sorted(project.directory.rglob("*.pem"))
    assert len(files) >= 5
    assert not (project.directory / "offline").exists()
    return [read_private_key(file) for file in files]


def look(project: ReleasedProject, release: Path, cache: Path | None = None) -> str:
    """Return what a release-built host says; empty when it believes."""
    root = (project.directory / "root.json").read_bytes()
    try:
        load_trust(
            read_release(release),
            root,
            NOW,
            installed=INSTALLED,
            cache=cache,
            release_build=True,
        )
    except TrustError as error:
        return error.code
    return ""


def sign(place: Path, name: str, signed: Signed, keys: list[PrivateKey]) -> None:
    """Write the next version of a role, signed with all of `keys`."""
    signed.version += 1
    metadata = Metadata(signed)
    for key in keys:
        metadata.sign(CryptoSigner(key.key), append=True)
    base = "timestamp" if name == "timestamp" else f"{signed.version}.{name}"
    (place / "metadata" / f"{base}.json").write_bytes(metadata.to_bytes())


def point(place: Path, online: list[PrivateKey]) -> None:
    """Sign snapshot and timestamp of whatever is newest in `place`."""
    snapshot = newest(place, "snapshot", Snapshot).signed
    for name in snapshot.meta:
        role = newest(place, name.removesuffix(".json"), Targets).signed
        snapshot.meta[name] = MetaFile(role.version)
    sign(place, "snapshot", snapshot, online)
    data = (place / "metadata" / "timestamp.json").read_bytes()
    timestamp = Metadata[Timestamp].from_bytes(data).signed
    timestamp.snapshot_meta = MetaFile(snapshot.version)
    sign(place, "timestamp", timestamp, online)


def copied(project: ReleasedProject, tmp_path: Path) -> Path:
    return Path(shutil.copytree(project.directory, tmp_path / "thief"))


def replace(place: Path, role: str, path: str, keys: list[PrivateKey]) -> None:
    """Let a role name other bytes at `path`, signed with `keys`."""
    signed = newest(place, role, Targets).signed
    known = signed.targets.get(path)
    stored = place / "targets" / path
    data = b"{}" if known is None else known_bytes(place, known) + b"\n"
    signed.targets[path] = TargetFile.from_data(path, data, ["sha256"])
    stored = stored.with_name(f"{content_digest(data)}.{stored.name}")
    stored.parent.mkdir(parents=True, exist_ok=True)
    stored.write_bytes(data)
    sign(place, role, signed, keys)


def known_bytes(place: Path, info: TargetFile) -> bytes:
    path = place / "targets" / info.path
    return path.with_name(f"{info.hashes['sha256']}.{path.name}").read_bytes()


@pytest.mark.parametrize("what", CERTIFIED)
def test_online_keys_replace_nothing(
    project: ReleasedProject, tmp_path: Path, what: str
) -> None:
    place, online = copied(project, tmp_path), stolen(project)
    assert look(project, project.directory, tmp_path / "seen") == ""
    replace(place, *CERTIFIED[what], online)
    point(place, online)
    assert look(project, place, tmp_path / "seen") == "STO-K012"
    assert look(project, place) == "STO-K012"


@pytest.mark.parametrize("what", ["the log policy", "the floors", "the withdrawals"])
def test_the_peoples_keys_do(
    project: ReleasedProject, tmp_path: Path, what: str
) -> None:
    """Control: it is the signatures that the change lacked, nothing else."""
    place, online = copied(project, tmp_path), stolen(project)
    role, path = CERTIFIED[what]
    replace(place, role, path, list(project.roles[role].keys[:2]))
    point(place, online)
    assert look(project, place) == ""


def test_online_keys_make_no_root(project: ReleasedProject, tmp_path: Path) -> None:
    place, online = copied(project, tmp_path), stolen(project)
    sign(place, "root", newest(place, "root", Root).signed, online)
    assert look(project, place) == "STO-K031"


def grow(data: bytes) -> bytes:
    return data + b"x"


def flip(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:]


@pytest.mark.parametrize(("change", "code"), [(flip, "STO-K019"), (grow, "STO-K013")])
def test_bytes_behind_a_name_are_not_exchanged(
    project: ReleasedProject,
    tmp_path: Path,
    change: Callable[[bytes], bytes],
    code: str,
) -> None:
    place = copied(project, tmp_path)
    for file in sorted((place / "targets").rglob("*.json")):
        honest = file.read_bytes()
        file.write_bytes(change(honest))
        assert look(project, place) == code
        file.write_bytes(honest)
    assert look(project, place) == ""


def test_what_he_can_do_is_hold_the_release_back(
    project: ReleasedProject, tmp_path: Path
) -> None:
    """This is the bound that THREATS.md names: he signs the old one as the newest."""
    place, online = copied(project, tmp_path), stolen(project)
    point(place, online)
    assert look(project, place) == ""

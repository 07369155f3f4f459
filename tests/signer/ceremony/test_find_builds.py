from pathlib import Path

import msgspec
import pytest

from stoilo.core.digests import content_digest
from stoilo.core.errors import StoiloError
from stoilo.core.signatures import PrivateKey
from stoilo.executor.verifier.installation import Built
from stoilo.executor.verifier.targets import BuilderFile, BuilderKey
from stoilo.signer.attestations import build_inputs, check_builds, make_attestation
from stoilo.signer.ceremony.built_parts import find_builds
from tests.support.stage import PLATFORM, make_flavor, make_verifier, write_build

BUILT = Built(
    format="stoilo-built/1",
    part="verifier",
    platform=PLATFORM,
    version="0.3",
    serial=3,
    commit="",
    root="e30=",
    origin="project.example/log",
)


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """The output of a build: launcher, verifier and a flavor."""
    write_build(tmp_path / "build", make_verifier(tmp_path / "verifier", BUILT))
    write_build(tmp_path / "build", make_flavor(tmp_path / "pure", "pure", 3))
    return tmp_path / "build"


def refusal(folder: Path) -> str:
    with pytest.raises(StoiloError) as caught:
        find_builds(folder)
    return caught.value.code


def test_every_build_in_a_folder_is_found(build: Path) -> None:
    assert sorted(one.part.part for one in find_builds(build)) == [
        "launcher",
        "pure",
        "verifier",
    ]


def test_two_builders_of_equal_folders_agree(build: Path) -> None:
    keys = [PrivateKey.generate() for _ in range(2)]
    listed = tuple(BuilderKey(key.public.raw.hex(), "") for key in keys)
    for one in find_builds(build):
        inputs = build_inputs(one.part, "ab" * 20, 0)
        signed = [make_attestation(one.part, inputs, key) for key in keys]
        assert check_builds(one.part, signed, BuilderFile(listed, 2)).threshold == 2


@pytest.mark.parametrize(
    "name",
    [
        f"launcher/{PLATFORM}",
        f"verifier/{PLATFORM}.tar",
        f"verifier/{PLATFORM}.tree",
        f"flavor/pure/{PLATFORM}.tar.xz",
        f"flavor/pure/{PLATFORM}.sbom.json",
    ],
)
def test_changed_file_does_not_fit_its_record(build: Path, name: str) -> None:
    data = (build / name).read_bytes()
    (build / name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert refusal(build) == "STO-K050"


def test_record_naming_another_tree_is_refused(build: Path) -> None:
    path = build / "verifier" / f"{PLATFORM}.json"
    (path.parent / f"{PLATFORM}.tree").write_bytes(b"other")
    record = msgspec.json.decode(path.read_bytes())
    record["tree"] = content_digest(b"other")
    path.write_bytes(msgspec.json.encode(record))
    assert refusal(build) == "STO-F006"


def test_damaged_record_is_refused(build: Path) -> None:
    path = build / "launcher" / f"{PLATFORM}.json"
    path.write_bytes(path.read_bytes().replace(b'"serial":3', b'"serial":0'))
    assert refusal(build) == "STO-K013"


def test_folder_without_builds_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"{}")
    assert refusal(tmp_path) == "STO-K050"


@pytest.mark.parametrize("commit", ["abc", "zz" * 20, "AB" * 20])
def test_what_is_no_commit_is_refused(build: Path, commit: str) -> None:
    with pytest.raises(StoiloError, match="STO-U003"):
        build_inputs(find_builds(build)[0].part, commit, 0)

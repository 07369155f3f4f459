"""What a release says of levels, languages, parts, floors and builders."""

import dataclasses
import json
from pathlib import Path

import msgspec
import pytest

from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError
from stoilo.executor.verifier.targets import (
    ArchiveFile,
    FloorsFile,
    PartFile,
    ProjectFile,
    TrustedRelease,
    part_target,
    read_target,
)
from stoilo.executor.verifier.trust import InstalledRelease, load_trust
from stoilo.signer.development.root import create_development_root
from stoilo.signer.release_pack import read_release
from tests.support.gate import INSTALLED, NOW
from tests.support.metadata import MetadataBench
from tests.support.release import certify_parts

ORIGIN = "project.example/log"
PLATFORM = "x86_64-linux"
OLD, NEW = "a" * 64, "b" * 64
PURE, NUMERIC = INSTALLED.levels


def make(directory: Path, installed: InstalledRelease = INSTALLED) -> TrustedRelease:
    root = create_development_root(directory, ORIGIN, NOW, installed=installed)
    return root.trust


def load(directory: Path, installed: InstalledRelease = INSTALLED) -> TrustedRelease:
    root = (directory / "root.json").read_bytes()
    return load_trust(read_release(directory), root, NOW, installed=installed)


def write_part(folder: Path, serial: int = 1) -> dict[str, Path]:
    """Write a verifier's files and return them by target name."""
    folder.mkdir(exist_ok=True)
    target = part_target("verifier", PLATFORM)
    files = {".tar": b"archive %d" % serial, ".tree": b"tree", ".sbom.json": b"{}"}
    paths = {}
    for suffix, data in files.items():
        paths[target + suffix] = folder / f"verifier{suffix}"
        paths[target + suffix].write_bytes(data)
    digests = {name: digest_of(path) for name, path in paths.items()}
    record = PartFile(
        format="stoilo-part/1",
        part="verifier",
        platform=PLATFORM,
        version="0.1.0",
        serial=serial,
        archive=ArchiveFile(
            "verifier.tar", len(files[".tar"]), digests[f"{target}.tar"]
        ),
        tree=digests[f"{target}.tree"],
        python="3.11",
        sbom=digests[f"{target}.sbom.json"],
    )
    paths[f"{target}.json"] = folder / "verifier.json"
    paths[f"{target}.json"].write_bytes(msgspec.json.encode(record))
    return paths


def digest_of(path: Path) -> str:
    return str(content_digest(path.read_bytes()))


def test_older_level_of_an_earlier_release_is_still_held(tmp_path: Path) -> None:
    older = msgspec.structs.replace(PURE, digest=OLD)
    both = dataclasses.replace(INSTALLED, levels=(PURE, older, NUMERIC))
    trusted = make(tmp_path / "r", both)
    assert trusted.level("pure") == PURE
    assert trusted.level("pure", OLD) == older
    assert trusted.level("pure", NEW) == PURE  # the verifier then names the difference
    assert [one.name for one in trusted.levels] == ["pure", "pure", "numeric"]


def test_older_level_that_is_no_longer_certified_is_not_held(tmp_path: Path) -> None:
    make(tmp_path / "r")
    older = msgspec.structs.replace(PURE, digest=OLD)
    both = dataclasses.replace(INSTALLED, levels=(older, *INSTALLED.levels))
    assert load(tmp_path / "r", both).level("pure", OLD) == PURE


@pytest.mark.parametrize(
    ("own", "older", "runs"),
    [
        (OLD, (), {OLD}),
        (NEW, (OLD,), {NEW, OLD}),
        (NEW, (), {NEW}),
        ("c" * 64, (), set()),
    ],
)
def test_languages_are_those_certified_that_run_here(
    tmp_path: Path, own: str, older: tuple[str, ...], runs: set[str]
) -> None:
    certified = InstalledRelease(INSTALLED.levels, NEW, languages=(OLD,))
    make(tmp_path / "r", certified)
    here = InstalledRelease(INSTALLED.levels, own, languages=older)
    assert load(tmp_path / "r", here).languages == runs


def test_development_root_has_no_parts_and_lowest_floors(tmp_path: Path) -> None:
    trusted = make(tmp_path / "r")
    assert trusted.parts == ()
    assert trusted.part("verifier", PLATFORM) is None
    assert trusted.flavor_part("", PLATFORM) is None
    assert trusted.floors.verifier == trusted.floors.serials.get("numeric", 1) == 1
    assert trusted.builders.threshold == 0


def test_published_part_is_known_and_its_archive_stays_home(tmp_path: Path) -> None:
    make(tmp_path / "r")
    certify_parts(tmp_path / "r", write_part(tmp_path / "p"), NOW)
    part = load(tmp_path / "r").part("verifier", PLATFORM)
    assert part is not None
    assert part.serial == 1
    names = [name for name, _ in read_release(tmp_path / "r").files]
    assert any(name.endswith(f"{PLATFORM}.json") for name in names)
    assert not any(name.endswith((".tar", ".tree", ".sbom.json")) for name in names)


def test_parts_and_floors_outlive_a_restart_of_the_server(tmp_path: Path) -> None:
    make(tmp_path / "r")
    floors = FloorsFile(verifier=2, serials={"numeric": 3})
    certify_parts(tmp_path / "r", write_part(tmp_path / "p", 2), NOW, floors=floors)
    trusted = make(tmp_path / "r")
    assert (trusted.floors.verifier, trusted.floors.serials.get("numeric", 1)) == (2, 3)
    assert trusted.part("verifier", PLATFORM) is not None
    certify_parts(tmp_path / "r", {}, NOW, floors=FloorsFile(verifier=5))
    assert load(tmp_path / "r").floors.verifier == 5


def test_newer_part_takes_the_older_ones_place(tmp_path: Path) -> None:
    make(tmp_path / "r")
    for serial in (1, 2):
        files = write_part(tmp_path / str(serial), serial)
        certify_parts(tmp_path / "r", files, NOW)
    trusted = load(tmp_path / "r")
    assert [part.serial for part in trusted.parts] == [2]


def test_part_whose_tree_is_missing_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "r")
    files = write_part(tmp_path / "p")
    del files[f"verifier/{PLATFORM}.tree"]
    certify_parts(tmp_path / "r", files, NOW)
    with pytest.raises(TrustError, match="STO-K013"):
        load(tmp_path / "r")


def test_builders_are_read() -> None:
    bench = MetadataBench(NOW)
    keys = [{"key": "ab" * 32, "name": "ada"}]
    bench.put("builders/keys.json", json.dumps({"keys": keys, "threshold": 1}).encode())
    bench.publish_targets()
    bench.publish()
    trusted = load_trust(bench.release(), bench.trusted, NOW, installed=INSTALLED)
    assert trusted.builders.threshold == 1
    assert trusted.builders.keys[0].name == "ada"


@pytest.mark.parametrize(
    "change",
    [
        {"format": "stoilo-part/2"},
        {"serial": 0},
        {"serial": True},
        {"part": "../x"},
        {"platform": "x86_64"},
        {"tree": "xyz"},
        {"archive": {"name": "a/b", "size": 1, "sha256": "0" * 64}},
        {"archive": {"name": "a", "size": 0, "sha256": "0" * 64}},
        {"unknown": 1},
    ],
)
def test_malformed_part_record_is_refused(change: dict[str, object]) -> None:
    record = {
        "format": "stoilo-part/1",
        "part": "launcher",
        "platform": PLATFORM,
        "version": "1",
        "serial": 1,
        "archive": {"name": "a", "size": 1, "sha256": "0" * 64},
    }
    assert read_target(json.dumps(record).encode(), PartFile, "x").serial == 1
    with pytest.raises(TrustError, match="STO-K013"):
        read_target(json.dumps(record | change).encode(), PartFile, "x")


def test_project_file_bounds_what_it_lists() -> None:
    many = {f"level-{n}": [OLD] for n in range(17)}
    data = json.dumps({"origin": ORIGIN, "levels": many, "languages": []}).encode()
    with pytest.raises(TrustError, match="STO-K013"):
        read_target(data, ProjectFile, "project.json")

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from stoilo.core.boinc.codesign import check_boinc_signature, parse_boinc_public
from stoilo.core.errors import TrustError, UsageError
from stoilo.executor.verifier.trust import load_trust
from stoilo.signer.development.programs import (
    next_serial,
    project_origin,
    project_root,
    publish_programs,
)
from stoilo.signer.development.root import create_development_root
from stoilo.signer.release_directory import read_release
from tests.support.gate import INSTALLED, NOW
from tests.support.slots import built_for
from tests.support.stage import PLATFORM, make_flavor, make_verifier, write_build

ORIGIN = "project.example/log"
LAUNCHER, VERIFIER = f"launcher/{PLATFORM}", f"verifier/{PLATFORM}.tar"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    directory = tmp_path / "keys"
    create_development_root(directory, ORIGIN, NOW, installed=INSTALLED)
    return directory


def make_build(folder: Path, keys: Path, root: bytes | None = None) -> Path:
    built = replace(built_for(root or project_root(keys), origin=ORIGIN), version="0.1")
    files = make_verifier(folder / "verifier", built)
    write_build(folder / "build", files | make_flavor(folder / "flavor", "pure", 1))
    return folder / "build"


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def test_published_programs_are_targets_of_the_release(
    keys: Path, tmp_path: Path
) -> None:
    publish_programs(keys, make_build(tmp_path, keys), NOW)
    root = (keys / "root.json").read_bytes()
    trust = load_trust(read_release(keys), root, NOW, installed=INSTALLED)
    assert {part.part for part in trust.parts} == {"launcher", "verifier", "pure"}


def test_signatures_are_those_of_the_published_key(keys: Path, tmp_path: Path) -> None:
    build = make_build(tmp_path, keys)
    made = publish_programs(keys, build, NOW)
    assert set(made.signed) == {LAUNCHER, VERIFIER}
    key = parse_boinc_public((keys / "boinc" / "key.pub").read_text())
    for name in made.signed:
        text = (keys / "boinc" / f"{name}.sig").read_text()
        check_boinc_signature(md5(build / name), text, key)
        with pytest.raises(TrustError, match="STO-K076"):
            check_boinc_signature("0" * 32, text, key)


def test_key_stays_and_is_closed_to_others(keys: Path, tmp_path: Path) -> None:
    build = make_build(tmp_path, keys)
    publish_programs(keys, build, NOW)
    first = (keys / "boinc" / "key.pub").read_bytes()
    publish_programs(keys, build, NOW + 60)
    assert (keys / "boinc" / "key.pub").read_bytes() == first
    assert (keys / "offline" / "boinc.key").stat().st_mode & 0o077 == 0


def test_next_serial_is_above_the_published_one(keys: Path, tmp_path: Path) -> None:
    assert next_serial(keys, PLATFORM) == 1
    publish_programs(keys, make_build(tmp_path, keys), NOW)
    assert next_serial(keys, PLATFORM) == 2


def test_origin_is_the_root_s(keys: Path) -> None:
    assert project_origin(keys) == ORIGIN


def test_verifier_of_another_root_is_refused(keys: Path, tmp_path: Path) -> None:
    create_development_root(tmp_path / "other", ORIGIN, NOW, installed=INSTALLED)
    build = make_build(tmp_path, keys, project_root(tmp_path / "other"))
    with pytest.raises(TrustError, match="STO-F034"):
        publish_programs(keys, build, NOW)
    assert not (keys / "boinc").exists()


@pytest.mark.parametrize("lacking", ["launcher", "verifier"])
def test_half_a_pair_is_refused(keys: Path, tmp_path: Path, lacking: str) -> None:
    build = make_build(tmp_path, keys)
    shutil.rmtree(build / lacking)
    with pytest.raises(TrustError, match="STO-E091"):
        publish_programs(keys, build, NOW)


def test_flavor_alone_can_be_published(keys: Path, tmp_path: Path) -> None:
    write_build(tmp_path / "build", make_flavor(tmp_path / "flavor", "pure", 1))
    assert publish_programs(keys, tmp_path / "build", NOW).signed == ()


def test_directory_without_a_root_is_refused(tmp_path: Path) -> None:
    (tmp_path / "keys" / "metadata").mkdir(parents=True)
    with pytest.raises(UsageError, match="STO-E090"):
        publish_programs(tmp_path / "keys", tmp_path, NOW)


def test_released_project_is_sent_to_the_ceremony(tmp_path: Path) -> None:
    state = tmp_path / "keys" / "state"
    state.mkdir(parents=True)
    (state / "requested.json").write_text("{}")
    with pytest.raises(UsageError, match="STO-K091") as caught:
        publish_programs(tmp_path / "keys", tmp_path, NOW)
    assert "release request" in str(caught.value.hint)

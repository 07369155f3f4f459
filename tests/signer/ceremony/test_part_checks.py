from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from stoilo.core.digests import content_digest
from stoilo.signer.ceremony.base_release import open_published
from stoilo.signer.ceremony.boinc_files import is_boinc_file
from stoilo.signer.ceremony.folder import Ceremony
from stoilo.signer.ceremony.proposal import Changes, NewTarget
from stoilo.signer.ceremony.review import next_step, review
from tests.support.stage import ReleaseStage, make_offline_key


@pytest.fixture(scope="module")
def stage() -> ReleaseStage:
    return ReleaseStage()


@pytest.fixture(scope="module")
def release(stage: ReleaseStage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A first release, without parts."""
    directory = tmp_path_factory.mktemp("pairs") / "release"
    stage.publish(directory, stage.first_ceremony())
    return directory


def codes(
    stage: ReleaseStage, release: Path, files: dict[str, bytes | Path]
) -> list[str]:
    ceremony: Ceremony = stage.next_ceremony(release, stage.put(files))
    attested = replace(ceremony, builds=stage.attest(files))
    return [one.code for one in review(attested, stage.now).problems]


def test_launcher_and_verifier_of_one_build_may_be_signed(
    stage: ReleaseStage, release: Path, tmp_path: Path
) -> None:
    files = stage.make_parts(tmp_path, stage.root(release))
    assert codes(stage, release, files) == []


def test_launcher_of_another_build_is_not_signed(
    stage: ReleaseStage, release: Path, tmp_path: Path
) -> None:
    first = stage.make_parts(tmp_path, stage.root(release))
    second = stage.make_parts(tmp_path, stage.root(release))
    mixed = second | {
        name: first[name] for name in first if name.startswith("launcher")
    }
    assert codes(stage, release, mixed) == ["STO-F034"]


def test_verifier_that_knows_another_root_is_not_signed(
    stage: ReleaseStage, release: Path, tmp_path: Path
) -> None:
    assert codes(stage, release, stage.make_parts(tmp_path, b"another")) == ["STO-F034"]


def test_verifier_of_a_rehearsal_is_not_signed_for_the_project(
    stage: ReleaseStage, release: Path, tmp_path: Path
) -> None:
    rehearsal = replace(stage, rehearsal=True)
    files = rehearsal.make_parts(tmp_path, stage.root(release))
    assert codes(stage, release, files) == ["STO-F034"]


def test_file_that_is_no_launcher_is_not_signed(
    stage: ReleaseStage, release: Path, tmp_path: Path
) -> None:
    files = stage.make_parts(tmp_path, stage.root(release))
    record = msgspec.json.decode(files["launcher/x86_64-linux.json"])
    record["archive"] |= {"size": 4, "sha256": content_digest(b"\x7fELF")}
    files["launcher/x86_64-linux"] = b"\x7fELF"
    files["launcher/x86_64-linux.json"] = msgspec.json.encode(record)
    assert codes(stage, release, files) == ["STO-F006"]


def test_new_verifier_beside_the_old_launcher_is_not_signed(
    stage: ReleaseStage, tmp_path: Path
) -> None:
    directory = tmp_path / "release"
    stage.publish(directory, stage.first_ceremony())
    first = stage.make_parts(tmp_path / "1", stage.root(directory))
    ceremony = stage.next_ceremony(directory, stage.put(first))
    stage.publish(directory, replace(ceremony, builds=stage.attest(first)))
    second = stage.make_parts(tmp_path / "2", stage.root(directory))
    alone = {name: second[name] for name in second if name.startswith("verifier")}
    assert codes(stage, directory, second) == []
    assert codes(stage, directory, alone) == ["STO-F034"]


@pytest.mark.parametrize("joins", [False, True])
def test_builders_who_change_with_what_they_attest_are_warned_of(
    stage: ReleaseStage, release: Path, tmp_path: Path, joins: bool
) -> None:
    files = stage.make_parts(tmp_path, stage.root(release))
    known = open_published(release).target("builders/keys.json") or b""
    document = msgspec.json.decode(known)
    mallory = make_offline_key("builder", "mallory").public.key
    document["keys"] += [{"key": mallory, "name": "mallory"}] if joins else []
    listed = NewTarget.of("builders/keys.json", msgspec.json.encode(document))
    changes = stage.put(files) | Changes(put=(listed,) if joins else ())
    ceremony = stage.next_ceremony(release, changes)
    found = review(replace(ceremony, builds=stage.attest(files)), stage.now)
    assert any("who attests" in one for one in found.warnings) is joins


def test_review_says_what_boincs_key_has_still_to_sign(
    stage: ReleaseStage, release: Path, tmp_path: Path
) -> None:
    files = stage.make_parts(tmp_path, stage.root(release))
    ceremony = stage.next_ceremony(release, stage.put(files))
    signed = stage.sign(replace(ceremony, builds=stage.attest(files)))
    bare = review(replace(signed, boinc=()), stage.now)
    programs = {name for name in files if is_boinc_file(name)}
    assert (set(bare.boinc_unsigned), bare.complete) == (programs, True)
    assert "holder of BOINC's key" in next_step(bare, "stick")
    done = review(signed, stage.now)
    assert done.boinc_unsigned == ()
    assert next_step(done, "stick").startswith("stoilo release publish stick")

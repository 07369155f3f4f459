"""A flavor with libraries, published by the policy role alone."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError, UsageError
from stoilo.core.libraries import library_target, load_library, parse_library
from stoilo.executor.verifier.targets import PartFile, TrustedRelease
from stoilo.executor.verifier.trust import load_trust
from stoilo.signer.ceremony.built_parts import drop_part, read_parts_from
from stoilo.signer.ceremony.content_checks import named_targets
from stoilo.signer.ceremony.folder import Ceremony
from stoilo.signer.ceremony.proposal import Changes, NewTarget
from stoilo.signer.ceremony.review import render_review, review
from stoilo.signer.published.evidence import part_rows
from stoilo.signer.release_pack import read_release
from tests.executor.verifier.test_libraries import file_of
from tests.signer.ceremony.test_built_parts import PLATFORM, build_flavor
from tests.support.ceremony import NOW, PEOPLE, CeremonyBench, new_key
from tests.support.gate import INSTALLED

SCIPY = load_library("scipy")
MANIFEST = b"requirements:\n  - scipy==1.17.1\nmodules:\n  - scipy\n"


def build(directory: Path, *libraries: str, flavor: bytes = MANIFEST) -> PartFile:
    """Write what a build of flavor `pure` with libraries leaves; return its record."""
    made = build_flavor(directory)
    part = msgspec.structs.replace(
        made,
        flavor=content_digest(flavor),
        alias="a" * 32,
        level="numeric",
        libraries=libraries or (SCIPY.digest,),
    )
    folder = directory / "flavor" / "pure"
    (folder / "manifest.yaml").write_bytes(flavor)
    (folder / f"{PLATFORM}.json").write_bytes(msgspec.json.encode(part))
    return part


@pytest.fixture
def people(tmp_path: Path) -> CeremonyBench:
    """A published project, two of three sign for its policy role as for targets."""
    made = CeremonyBench(tmp_path / "release")
    made.keys["policy"] = [new_key("policy", name) for name in PEOPLE]
    made.publish(made.first())
    return made


def trust(people: CeremonyBench) -> TrustedRelease:
    root = (people.directory / "metadata" / "1.root.json").read_bytes()
    files = read_release(people.directory)
    return load_trust(files, root, NOW, installed=INSTALLED)


def proposed(
    people: CeremonyBench, directory: Path, *libraries: str, by_policy: bool = True
) -> Ceremony:
    part = build(directory, *libraries)
    changes = read_parts_from(directory, by_policy=by_policy)
    return people.attest(people.request(changes), part)


def problems(ceremony: Ceremony) -> list[str]:
    return [one.code for one in review(ceremony, NOW).problems]


def test_flavor_is_published_by_the_policy_role_alone(
    people: CeremonyBench, tmp_path: Path
) -> None:
    before = trust(people)
    ceremony = proposed(people, tmp_path / "dist")
    assert problems(ceremony) == []
    assert [file.role for file in ceremony.proposal.metadata] == ["policy"]
    people.publish(ceremony)
    after = trust(people)
    (part,) = after.parts
    assert part.target == f"policy/flavor-pure.{PLATFORM}"
    assert after.library(SCIPY.digest) == SCIPY
    assert (after.root_version, after.targets_version) == (
        before.root_version,
        before.targets_version,
    )
    assert part_rows(after)[0].name == part.target


def test_review_tells_the_flavor_and_the_librarys_whole_text(
    people: CeremonyBench, tmp_path: Path
) -> None:
    text = render_review(review(proposed(people, tmp_path / "dist"), NOW))
    assert f"policy/flavor-pure.{PLATFORM}.json" in text
    assert f"library {SCIPY.digest}" in text
    assert "the very file of this installation" in text
    assert SCIPY.summary in text


def test_same_build_can_be_published_by_the_targets_role(
    people: CeremonyBench, tmp_path: Path
) -> None:
    ceremony = proposed(people, tmp_path / "dist", by_policy=False)
    assert problems(ceremony) == []
    people.publish(ceremony)
    (part,) = trust(people).parts
    assert (part.target, part.role) == (f"flavor/pure/{PLATFORM}", "targets")


def test_one_signature_does_not_publish_a_program(tmp_path: Path) -> None:
    alone = CeremonyBench(tmp_path / "release")  # one key for policy
    alone.publish(alone.first())
    ceremony = proposed(alone, tmp_path / "dist")
    assert problems(ceremony) == ["STO-K063"]
    with pytest.raises(TrustError, match="2 must sign for the policy role"):
        alone.publish(ceremony)


def test_verifier_refuses_a_flavor_that_one_person_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = CeremonyBench(tmp_path / "alone")
    alone.publish(alone.first())
    ceremony = proposed(alone, tmp_path / "dist")
    monkeypatch.setattr(
        "stoilo.signer.ceremony.content_checks._check_policy_flavors", lambda *_: ()
    )
    alone.publish(ceremony)
    with pytest.raises(TrustError, match="STO-K013"):
        trust(alone)


def test_policy_role_never_names_what_the_targets_role_has(
    people: CeremonyBench, tmp_path: Path
) -> None:
    people.publish(proposed(people, tmp_path / "one", by_policy=False))
    assert problems(proposed(people, tmp_path / "two")) == ["STO-K063"]


def test_policy_role_names_no_program(tmp_path: Path) -> None:
    build_flavor(tmp_path)  # a record without a flavor's id
    with pytest.raises(UsageError, match="STO-K054"):
        read_parts_from(tmp_path, by_policy=True)


def test_flavor_that_too_few_built_equal_is_not_signed(
    people: CeremonyBench, tmp_path: Path
) -> None:
    ceremony = proposed(people, tmp_path / "dist")
    few = replace(ceremony, builds=ceremony.builds[:1])
    assert problems(few) == ["STO-F030"]


def library(name: str, data: bytes) -> NewTarget:
    return NewTarget.of(f"policy/library-{name}.toml", data)


@pytest.mark.parametrize(
    "file",
    [
        library("aa", b"broken ["),
        library("aa", file_of("os")),
        library("bb", file_of("aa")),
        library("aa-123456789abc", file_of("aa")),
    ],
    ids=["broken", "opens Python", "another's name", "another's digest"],
)
def test_library_that_is_not_what_its_name_says_is_not_signed(
    people: CeremonyBench, file: NewTarget
) -> None:
    assert problems(people.request(Changes(put=(file,)))) == ["STO-K063"]


def test_flavor_with_a_library_that_nobody_has_the_file_of_is_not_signed(
    people: CeremonyBench, tmp_path: Path
) -> None:
    ceremony = proposed(people, tmp_path / "dist", "d" * 64)
    assert problems(ceremony) == ["STO-K063"]


def test_versions_of_a_library_stand_side_by_side(
    people: CeremonyBench, tmp_path: Path
) -> None:
    people.publish(proposed(people, tmp_path / "dist"))
    newer = parse_library(file_of("scipy"))
    target = NewTarget.of(library_target(newer), file_of("scipy"))
    people.publish(people.request(Changes(put=(target,))))
    assert set(trust(people).libraries) == {SCIPY.digest, newer.digest}


def test_more_parts_than_the_log_can_name_are_not_signed(
    people: CeremonyBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoilo.signer.ceremony.content_checks.MAX_PARTS", 0)
    assert problems(proposed(people, tmp_path / "dist")) == ["STO-K063"]


def test_withdrawn_part_takes_all_its_files_with_it(
    people: CeremonyBench, tmp_path: Path
) -> None:
    people.publish(proposed(people, tmp_path / "dist"))
    names = set(named_targets(people.request(Changes()).proposal))
    gone = drop_part(names, "pure")
    assert len(gone) == len(drop_part(names, "pure", PLATFORM)) + 1  # the manifest
    people.publish(people.request(Changes(drop=gone)))
    assert trust(people).parts == ()

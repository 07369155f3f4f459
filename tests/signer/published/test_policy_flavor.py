"""`stoilo release verify` over a flavor that the policy role named alone, and a newer one."""

from dataclasses import replace
from pathlib import Path

import pytest

from stoilo.core.errors import TrustError
from stoilo.signer.ceremony.built_parts import read_parts_from
from stoilo.signer.published.places import open_place
from stoilo.signer.published.verify import PublishedRelease, verify_release
from tests.support.stage import (
    PLATFORM,
    ReleaseStage,
    make_flavor,
    make_offline_key,
    write_build,
)


def add_flavor(stage: ReleaseStage, release: Path, folder: Path, serial: int) -> None:
    """Publish flavor `pure` by the policy role alone."""
    files = make_flavor(folder / f"made-{serial}", "pure", serial)
    write_build(folder / f"dist-{serial}", files)
    changes = read_parts_from(folder / f"dist-{serial}", by_policy=True)
    ceremony = stage.next_ceremony(release, changes)
    stage.publish(release, replace(ceremony, builds=stage.attest(files)))


@pytest.fixture
def stage() -> ReleaseStage:
    people = tuple(make_offline_key("policy", name) for name in ("pia", "pat"))
    return ReleaseStage(keys={"policy": people})


@pytest.fixture
def release(stage: ReleaseStage, tmp_path: Path) -> Path:
    """A release whose flavor was replaced by a newer one; the older archive is gone."""
    place = tmp_path / "release"
    stage.publish(place, stage.first_ceremony())
    add_flavor(stage, place, tmp_path, 1)
    (old,) = place.rglob("*.flavor-pure.*.tar.xz")
    add_flavor(stage, place, tmp_path, 2)
    old.unlink()
    return place


def verify(stage: ReleaseStage, release: Path) -> PublishedRelease:
    place = open_place(str(release))
    return verify_release(place, stage.now, installed=stage.installed)


def test_release_with_a_flavor_of_the_policy_role_holds(
    stage: ReleaseStage, release: Path
) -> None:
    found = verify(stage, release)
    (part,) = found.trust.parts
    assert (part.serial, part.role) == (2, "policy")
    assert [one.builders for one in found.evidence] == [("bea", "ben")]


@pytest.mark.parametrize("suffix", [".tar.xz", ".tree", ".sbom.json", ".json"])
def test_file_of_such_a_flavor_that_changed_is_noticed(
    stage: ReleaseStage, release: Path, suffix: str
) -> None:
    files = release.rglob(f"*.flavor-pure.{PLATFORM}{suffix}")
    newest = max(files, key=lambda path: path.stat().st_mtime_ns)
    newest.write_bytes(newest.read_bytes()[:-1] + b"~")
    with pytest.raises(TrustError):
        verify(stage, release)

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoilo.core.errors import StoiloError, TrustError
from stoilo.executor.verifier.trust import ReleaseFiles
from stoilo.signer.ceremony.base_release import (
    find_release,
    open_base,
    open_published,
    roles_ending,
)
from stoilo.signer.ceremony.folder import begin_on
from stoilo.signer.ceremony.proposal import Changes
from stoilo.signer.release_pack import read_release
from tests.support.ceremony import DAY_S, NOW, CeremonyBench
from tests.support.gate import INSTALLED
from tests.support.release import ReleasedProject


def without(directory: Path, name: str) -> ReleaseFiles:
    files = read_release(directory).files
    return ReleaseFiles(tuple(row for row in files if row[0] != name))


def test_release_is_followed_to_its_newest_root(bench: CeremonyBench) -> None:
    bench.publish(bench.request(Changes(renew=("root", "targets"))))
    current = open_published(bench.directory)
    assert ([file.version for file in current.roots], current.targets.version) == (
        [1, 2],
        2,
    )
    assert {file.role for file in current.online} == {"snapshot", "timestamp"}


def test_release_without_a_timestamp_can_be_built_on(fresh: CeremonyBench) -> None:
    from stoilo.signer.ceremony.publication import publish  # noqa: PLC0415

    publish(fresh.sign(fresh.first()), fresh.directory, NOW)
    assert open_published(fresh.directory).online == ()


def test_old_files_are_not_carried_along(bench: CeremonyBench) -> None:
    bench.publish(bench.request(Changes(renew=("targets",))))
    names = [name for name, _ in read_release(bench.directory).files]
    assert "metadata/1.targets.json" not in names


@pytest.mark.parametrize(
    "name", ["metadata/1.root.json", "metadata/1.targets.json", "metadata/1.gate.json"]
)
def test_missing_metadata_is_refused(bench: CeremonyBench, name: str) -> None:
    bench.publish(bench.request(Changes(renew=("root",))))
    with pytest.raises(TrustError, match="STO-K052"):
        open_base(without(bench.directory, name))


def test_release_of_other_people_is_refused(
    bench: CeremonyBench, tmp_path: Path
) -> None:
    other = CeremonyBench(tmp_path / "other")
    other.publish(other.first())
    shutil.copy(
        other.directory / "metadata" / "1.targets.json",
        bench.directory / "metadata" / "2.targets.json",
    )
    with pytest.raises(TrustError, match=r"STO-K0(50|52)"):
        open_published(bench.directory)


def test_damaged_target_is_refused(bench: CeremonyBench) -> None:
    (path,) = (bench.directory / "targets").glob("*.project.json")
    path.write_bytes(b"{}")
    with pytest.raises(TrustError, match="STO-K052"):
        open_published(bench.directory).target("project.json")


def test_link_in_the_release_is_refused(bench: CeremonyBench) -> None:
    path = bench.directory / "metadata" / "1.gate.json"
    path.unlink()
    path.symlink_to("/etc/hostname")
    with pytest.raises(TrustError, match="STO-K013"):
        open_published(bench.directory)


def test_ceremony_begins_on_a_fresh_release_only(bench: CeremonyBench) -> None:
    assert begin_on(bench.directory, NOW).about.base
    with pytest.raises(TrustError, match="STO-K052"):
        begin_on(bench.directory, NOW + 8 * DAY_S)
    late = begin_on(bench.directory, NOW + 8 * DAY_S, renews_expired=True)
    assert late.about.renews_expired


def test_servers_data_directory_is_found(bench: CeremonyBench) -> None:
    data = bench.directory.with_name("data")
    shutil.copytree(bench.directory, data / "keys")
    assert find_release(data) == data / "keys"
    with pytest.raises(StoiloError, match="STO-K052"):
        find_release(bench.directory.parent / "none")


def test_roles_that_end_soon_are_named(bench: CeremonyBench) -> None:
    current = open_published(bench.directory)
    assert roles_ending(current, NOW) == ()
    assert "targets" in roles_ending(current, NOW + 130 * DAY_S)
    assert "root" not in roles_ending(current, NOW + 130 * DAY_S)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(place=st.integers(0, 10**6), byte=st.integers(1, 255))
def test_changed_byte_is_refused_or_was_not_signed(
    published_bench: CeremonyBench, place: int, byte: int
) -> None:
    files = list(read_release(published_bench.directory).files)
    metadata = [
        at
        for at, (name, _) in enumerate(files)
        if name.startswith("metadata/") and "timestamp" not in name
    ]
    at = metadata[place % len(metadata)]
    name, data = files[at]
    changed = bytearray(data)
    changed[place % len(data)] ^= byte
    files[at] = (name, bytes(changed))
    honest = open_published(published_bench.directory)
    try:
        current = open_base(ReleaseFiles(tuple(files)))
    except StoiloError as error:
        assert error.code.startswith("STO-")
    else:
        assert current.digest == honest.digest


@pytest.fixture
def project(tmp_path: Path) -> ReleasedProject:
    made = ReleasedProject(tmp_path / "keys", "project.example/log", INSTALLED)
    made.publish(NOW)
    return made


def test_release_is_read_before_its_timestamp_is_signed(
    project: ReleasedProject,
) -> None:
    (project.directory / "metadata" / "timestamp.json").unlink()
    assert open_base(read_release(project.directory)).targets.version == 1


def test_newest_is_read_though_the_timestamp_still_names_the_older(
    project: ReleasedProject,
) -> None:
    project.publish(NOW + 120 * DAY_S, online_too=False)
    assert open_base(read_release(project.directory)).targets.version == 2


def test_small_targets_come_along_and_older_files_do_not(
    project: ReleasedProject,
) -> None:
    project.publish(NOW + 120 * DAY_S)
    files = read_release(project.directory)
    names = [name for name, _ in files.files]
    assert "metadata/1.targets.json" not in names
    assert any(name.endswith(".project.json") for name in names)
    assert open_base(files).target("project.json")

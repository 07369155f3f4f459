from pathlib import Path

import pytest

from stoilo.core.errors import TrustError
from stoilo.signer.ceremony.base_release import open_current, read_published
from tests.support.gate import INSTALLED, NOW
from tests.support.release import ReleasedProject

DAY_S = 86_400


@pytest.fixture
def project(tmp_path: Path) -> ReleasedProject:
    made = ReleasedProject(tmp_path / "keys", "project.example/log", INSTALLED)
    made.publish(NOW)
    return made


def test_release_is_read_before_its_timestamp_is_signed(
    project: ReleasedProject,
) -> None:
    (project.directory / "metadata" / "timestamp.json").unlink()
    assert open_current(read_published(project.directory)).targets.version == 1


def test_newest_is_read_though_the_timestamp_still_names_the_older(
    project: ReleasedProject,
) -> None:
    project.publish(NOW + 120 * DAY_S, online_too=False)
    assert open_current(read_published(project.directory)).targets.version == 2


def test_small_targets_come_along_and_older_files_do_not(
    project: ReleasedProject,
) -> None:
    project.publish(NOW + 120 * DAY_S)
    files = read_published(project.directory)
    names = [name for name, _ in files.files]
    assert "metadata/1.targets.json" not in names
    assert any(name.endswith(".project.json") for name in names)
    assert open_current(files).target("project.json")


def test_metadata_past_the_bound_is_refused(project: ReleasedProject) -> None:
    file = project.directory / "metadata" / "2.targets.json"
    file.write_bytes(b" " * (512 * 1024 + 1))
    with pytest.raises(TrustError, match="STO-K050"):
        read_published(project.directory)

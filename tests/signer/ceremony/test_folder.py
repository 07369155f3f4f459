import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoilo.core.errors import StoiloError, TrustError, UsageError
from stoilo.signer.ceremony.folder import Ceremony, read_folder, write_folder
from stoilo.signer.ceremony.proposal import Changes, NewTarget
from tests.support.ceremony import CeremonyBench

NEW = "levels/new.toml"


@pytest.fixture
def ceremony(bench: CeremonyBench) -> Ceremony:
    changes = Changes(put=(NewTarget.of(NEW, b"new"),), renew=("root",))
    return replace(
        bench.sign(bench.request(changes)),
        builds=(("verifier/x86_64-linux/0011aabb.json", b"{}"),),
        boinc=(("key.pub", b"k"), ("launcher/x86_64-linux.sig", b"s")),
        online=b"{}",
        transcript=b"",
    )


@pytest.fixture
def folder(ceremony: Ceremony, tmp_path: Path) -> Path:
    write_folder(tmp_path / "stick", ceremony)
    return tmp_path / "stick"


def test_what_was_written_is_read(ceremony: Ceremony, folder: Path) -> None:
    assert read_folder(folder) == ceremony


def test_writing_again_changes_nothing(ceremony: Ceremony, folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    write_folder(folder, ceremony)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_what_is_no_longer_proposed_is_removed(
    ceremony: Ceremony, folder: Path
) -> None:
    write_folder(folder, replace(ceremony, builds=(), boinc=()))
    assert not (folder / "builds").exists()
    assert read_folder(folder).boinc == ()


def test_half_of_an_interrupted_writing_is_ignored(
    ceremony: Ceremony, folder: Path
) -> None:
    (folder / "proposed" / "metadata" / ".2.root.json.new").write_bytes(b"ha")
    assert read_folder(folder) == ceremony


def test_archive_stays_on_disk_and_is_hashed(
    bench: CeremonyBench, tmp_path: Path
) -> None:
    archive = tmp_path / "archive"
    archive.write_bytes(b"0123456789" * 60_000)
    one = NewTarget.of(NEW, archive.read_bytes())
    big = replace(one, content=archive)
    write_folder(tmp_path / "stick", bench.request(Changes(put=(big,))))
    (found,) = read_folder(tmp_path / "stick").proposal.targets
    assert isinstance(found.content, Path)
    with found.content.open("r+b") as file:
        file.write(b"x")
    with pytest.raises(TrustError, match="STO-K050"):
        read_folder(tmp_path / "stick")


@pytest.mark.parametrize(
    "name",
    [
        "ada.root.key",
        "proposed/metadata/2.other.json",
        "proposed/metadata/7.root.json",
        "proposed/targets/levels/stranger.toml",
        "current/metadata/UP/x.json",
        "boinc/private",
        ".hidden",
        "builds/x.json",
    ],
)
def test_file_that_does_not_belong_there_is_refused(folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True, parents=True)
    (folder / name).write_bytes(b"{}")
    with pytest.raises(TrustError, match="STO-K050"):
        read_folder(folder)


def test_link_is_refused(folder: Path) -> None:
    (folder / "transcript.jsonl").symlink_to("/etc/hostname")
    with pytest.raises(TrustError, match="STO-K050"):
        read_folder(folder)


def test_linked_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    shutil.move(folder / "boinc", tmp_path / "elsewhere")
    (folder / "boinc").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TrustError, match="STO-K050"):
        read_folder(folder)


def test_missing_target_is_refused(folder: Path) -> None:
    for path in (folder / "proposed" / "targets").rglob("*.toml"):
        path.unlink()
    with pytest.raises(TrustError, match="STO-K050"):
        read_folder(folder)


def test_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(UsageError, match="STO-K050"):
            read_folder(folder)


def test_oversized_file_is_refused(folder: Path) -> None:
    (folder / "ceremony.json").write_bytes(b" " * (512 * 1024 + 1))
    with pytest.raises(TrustError, match="STO-K050"):
        read_folder(folder)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(place=st.integers(0, 10**6), byte=st.integers(1, 255), cut=st.booleans())
def test_any_change_ends_in_our_error_or_in_what_it_says(
    folder: Path, place: int, byte: int, cut: bool
) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    file = files[place % len(files)]
    data = file.read_bytes()
    at = place % max(1, len(data))
    changed = bytearray(data)
    if data:
        changed[at] ^= byte
    file.write_bytes(data[:at] if cut else bytes(changed))
    try:
        read_folder(folder)
    except StoiloError as error:
        assert error.code.startswith("STO-")
    finally:
        file.write_bytes(data)


def test_folders_without_end_are_refused(folder: Path) -> None:
    (folder / "/".join("a" * 400)).mkdir(parents=True)
    with pytest.raises(TrustError, match="STO-K050"):
        read_folder(folder)

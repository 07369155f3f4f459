"""Archives: nobody signs what was not rebuilt equal."""

import io
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError, UsageError
from stoilo.core.frozen_tree import Tree, TreeFile, render_tree
from stoilo.executor.verifier.targets import ArchiveFile, PartFile
from stoilo.flavors.packing import XzWriter, describe_tree, write_archive
from stoilo.signer.ceremony.built_parts import (
    drop_part,
    read_attestations,
    read_parts_from,
)
from stoilo.signer.ceremony.content_checks import named_targets, release_parts
from stoilo.signer.ceremony.folder import Ceremony
from stoilo.signer.ceremony.proposal import Changes, NewTarget
from stoilo.signer.ceremony.publication import publish
from stoilo.signer.ceremony.review import review
from tests.support.ceremony import NOW, CeremonyBench, new_key

PLATFORM = "x86_64-linux"


def build_flavor(
    directory: Path, serial: int = 1, program: bytes = b"\x7fELF"
) -> PartFile:
    """Write a flavor's files as a build leaves them, and return its record."""
    folder, tree_folder = directory / "flavor" / "pure", directory / "tree"
    folder.mkdir(parents=True, exist_ok=True)
    tree_folder.mkdir(exist_ok=True)
    (tree_folder / "stoilo-runtime").write_bytes(program)
    described = describe_tree(tree_folder, "pure", PLATFORM)
    tree, stream = render_tree(described), io.BytesIO()
    writer = XzWriter(stream)
    write_archive(tree_folder, described, writer)
    writer.close()
    archive = stream.getvalue()
    part = PartFile(
        format="stoilo-part/1",
        part="pure",
        platform=PLATFORM,
        version="1.0",
        serial=serial,
        archive=ArchiveFile(
            f"{PLATFORM}.tar.xz", len(archive), content_digest(archive)
        ),
        tree=content_digest(tree),
        python="3.11",
    )
    (folder / f"{PLATFORM}.tar.xz").write_bytes(archive)
    (folder / f"{PLATFORM}.tree").write_bytes(tree)
    (folder / f"{PLATFORM}.json").write_bytes(msgspec.json.encode(part))
    return part


@pytest.fixture
def built(tmp_path: Path) -> tuple[Path, PartFile]:
    return tmp_path / "dist", build_flavor(tmp_path / "dist")


def codes(ceremony: Ceremony) -> set[str]:
    return {one.code for one in review(ceremony, NOW).problems}


def test_part_that_two_builders_built_equal_is_signed(
    bench: CeremonyBench, built: tuple[Path, PartFile]
) -> None:
    directory, part = built
    ceremony = bench.attest(bench.request(read_parts_from(directory)), part)
    found = review(ceremony, NOW)
    assert found.problems == ()
    assert found.builds[0].builders == ("ada", "ben")
    bench.publish(ceremony)
    assert (bench.directory / "builds" / "pure" / PLATFORM).is_dir()
    names = [one.part for one in release_parts(bench.request(Changes()).proposal)]
    assert names == ["pure"]


@pytest.mark.parametrize("builders", [0, 1])
def test_part_that_too_few_built_is_refused(
    bench: CeremonyBench, built: tuple[Path, PartFile], builders: int
) -> None:
    directory, part = built
    ceremony = bench.request(read_parts_from(directory))
    few = bench.attest(ceremony, part, bench.builders[:builders])
    assert codes(few) == {"STO-F030"}
    with pytest.raises(TrustError, match="STO-F030"):
        publish(bench.sign(few), bench.directory, NOW)


def test_builder_who_got_other_bytes_stops_the_ceremony(
    bench: CeremonyBench, built: tuple[Path, PartFile]
) -> None:
    directory, part = built
    other = msgspec.structs.replace(
        part, archive=msgspec.structs.replace(part.archive, sha256="1" * 64)
    )
    ceremony = bench.attest(bench.request(read_parts_from(directory)), part)
    mixed = bench.attest(ceremony, other, bench.builders[1:])
    assert codes(mixed) == {"STO-F032"}


def test_stranger_is_no_builder(
    bench: CeremonyBench, built: tuple[Path, PartFile]
) -> None:
    directory, part = built
    strangers = [new_key("builder", name) for name in ("mallory", "eve")]
    ceremony = bench.attest(bench.request(read_parts_from(directory)), part, strangers)
    assert codes(ceremony) == {"STO-F030"}


def test_part_that_stays_is_not_asked_about_again(
    bench: CeremonyBench, built: tuple[Path, PartFile]
) -> None:
    directory, part = built
    bench.publish(bench.attest(bench.request(read_parts_from(directory)), part))
    assert codes(bench.request(Changes(renew=("targets",)))) == set()


def test_serial_must_rise_with_other_bytes(
    bench: CeremonyBench, built: tuple[Path, PartFile], tmp_path: Path
) -> None:
    directory, part = built
    bench.publish(bench.attest(bench.request(read_parts_from(directory)), part))
    for serial, expected in ((1, {"STO-K063"}), (2, set())):
        again = build_flavor(tmp_path / f"again{serial}", serial, b"another program")
        changes = read_parts_from(tmp_path / f"again{serial}")
        assert codes(bench.attest(bench.request(changes), again)) == expected


def test_file_that_is_not_what_the_record_says_is_refused(
    built: tuple[Path, PartFile],
) -> None:
    directory, _ = built
    (directory / "flavor" / "pure" / f"{PLATFORM}.tar.xz").write_bytes(b"b tar")
    with pytest.raises(TrustError, match="STO-K050"):
        read_parts_from(directory)


def test_missing_file_is_refused(built: tuple[Path, PartFile]) -> None:
    directory, _ = built
    (directory / "flavor" / "pure" / f"{PLATFORM}.tree").unlink()
    with pytest.raises(TrustError, match="STO-K050"):
        read_parts_from(directory)


def test_record_in_another_parts_place_is_refused(
    built: tuple[Path, PartFile],
) -> None:
    directory, _ = built
    (directory / "flavor" / "pure").rename(directory / "flavor" / "numeric")
    with pytest.raises(TrustError, match="STO-K050"):
        read_parts_from(directory)


def test_directory_without_parts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="STO-K050"):
        read_parts_from(tmp_path)


def test_archive_of_another_tree_is_refused(built: tuple[Path, PartFile]) -> None:
    directory, part = built
    other = TreeFile("1" * 64, 1, True, "stoilo-runtime")  # noqa: FBT003
    tree = render_tree(Tree("numeric", PLATFORM, (other,)))
    forged = msgspec.structs.replace(part, tree=content_digest(tree))
    (directory / "flavor" / "pure" / f"{PLATFORM}.tree").write_bytes(tree)
    (directory / "flavor" / "pure" / f"{PLATFORM}.json").write_bytes(
        msgspec.json.encode(forged)
    )
    with pytest.raises(TrustError, match="STO-F0"):
        read_parts_from(directory)


def test_list_of_another_part_is_refused(
    bench: CeremonyBench, built: tuple[Path, PartFile]
) -> None:
    directory, part = built
    other = TreeFile("1" * 64, 1, True, "stoilo-runtime")  # noqa: FBT003
    tree = NewTarget.of(
        f"flavor/pure/{PLATFORM}.tree", render_tree(Tree("numeric", PLATFORM, (other,)))
    )
    forged = msgspec.structs.replace(part, tree=tree.digest)
    record = NewTarget.of(f"flavor/pure/{PLATFORM}.json", msgspec.json.encode(forged))
    changes = read_parts_from(directory) | Changes(put=(tree, record))
    assert codes(bench.attest(bench.request(changes), forged)) == {"STO-K063"}


def test_attestations_are_read_from_where_builders_put_them(
    built: tuple[Path, PartFile],
) -> None:
    directory, _ = built
    folder = directory / "builds" / "verifier" / PLATFORM
    folder.mkdir(parents=True)
    (folder / "00112233.json").write_bytes(b"{}")
    (folder / "notes.json").write_bytes(b"{}")
    assert read_attestations(directory) == (
        (f"verifier/{PLATFORM}/00112233.json", b"{}"),
    )


def test_withdrawn_part_leaves_with_all_its_files(
    bench: CeremonyBench, built: tuple[Path, PartFile]
) -> None:
    directory, part = built
    bench.publish(bench.attest(bench.request(read_parts_from(directory)), part))
    names = set(named_targets(bench.request(Changes()).proposal))
    dropped = drop_part(names, "pure", PLATFORM)
    assert len(dropped) == 3
    ceremony = bench.request(Changes(drop=dropped))
    assert codes(ceremony) == set()
    bench.publish(ceremony)
    assert not (bench.directory / "builds").exists()
    with pytest.raises(UsageError, match="STO-K054"):
        drop_part(names, "tensor")


def test_boinc_signatures_are_complete_or_the_release_is_not(
    bench: CeremonyBench,
) -> None:
    launcher = NewTarget.of(f"launcher/{PLATFORM}", b"\x7fELF")
    ceremony = bench.request(Changes(put=(launcher,)))
    half = replace(bench.sign(ceremony), boinc=(("key.pub", b"x"),))
    with pytest.raises(TrustError, match="STO-K068"):
        publish(half, bench.directory, NOW)

from __future__ import annotations

import dataclasses
import io
import lzma
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from stoilo.core.digests import content_digest
from stoilo.core.errors import PolicyRefusal, StoiloError
from stoilo.core.levels import load_levels
from stoilo.executor.verifier.targets import ArchiveFile, PartFile, TrustedRelease
from stoilo.executor.verifier.workunit import FLAVOR, open_name_bound
from stoilo.flavors.manifest import find_flavor
from stoilo.flavors.packing import describe_tree, write_archive
from stoilo.server.engines.workunits import WorkunitFile
from stoilo.server.release.flavors import choose_flavor, flavor_parts
from stoilo.server.release.parts import (
    USUAL_GROWTH,
    FlavorFiles,
    ReleasedLevels,
    kept_archives,
)
from tests.support.gate import GateBench

X86, ARM = "x86_64-linux", "aarch64-linux"


def part(name: str, *, level: str = "", platform: str = X86) -> PartFile:
    return PartFile(
        format="stoilo-part/1",
        part=name,
        platform=platform,
        version="1",
        serial=1,
        archive=ArchiveFile(
            f"{platform}.tar.xz", 9, content_digest(f"{name}{platform}".encode())
        ),
        flavor=content_digest(name.encode()),
        alias=content_digest(name.encode())[:32],
        level=level or name,
    )


Release = Callable[..., TrustedRelease]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    trust = GateBench(tmp_path_factory.mktemp("root")).root.trust

    def made(*parts: PartFile, **changes: object) -> TrustedRelease:
        return dataclasses.replace(trust, parts=parts, **changes)

    return made


PURE, NUMERIC = part("pure"), part("numeric")


def test_without_published_flavors_the_installed_ones_are_taken(
    release: Release,
) -> None:
    assert choose_flavor("", "numeric", (), release()) == find_flavor("numeric").digest
    assert choose_flavor("pure", "pure", (), release()) == find_flavor("pure").digest


def test_unknown_flavor_is_refused_where_none_is_published(release: Release) -> None:
    with pytest.raises(StoiloError, match="STO-P002"):
        choose_flavor("nonsense", "pure", (), release())


def test_alias_that_stands_for_a_shipped_flavor_is_taken(release: Release) -> None:
    of_the_thesis = "44814764c91bf9ef426c4aa899df974f"
    found = choose_flavor(of_the_thesis, "tensor", (), release())
    assert found == find_flavor(of_the_thesis).digest


@pytest.mark.parametrize("wish", ["numeric", NUMERIC.flavor, NUMERIC.alias])
def test_published_flavor_is_named_by_name_or_either_id(
    release: Release, wish: str
) -> None:
    assert choose_flavor(wish, "pure", (), release(PURE, NUMERIC)) == NUMERIC.flavor


def test_default_is_the_narrowest_that_serves_the_level(release: Release) -> None:
    big = part("big", level="tensor")
    assert choose_flavor("", "pure", (), release(big, NUMERIC, PURE)) == PURE.flavor
    assert choose_flavor("", "numeric", (), release(big, PURE)) == big.flavor


def test_namesake_of_the_level_comes_first(release: Release) -> None:
    other = part("array", level="numeric")
    assert choose_flavor("", "numeric", (), release(other, NUMERIC)) == NUMERIC.flavor


def test_installed_flavor_that_is_not_published_is_refused(release: Release) -> None:
    with pytest.raises(PolicyRefusal, match="STO-K097") as refusal:
        choose_flavor("tensor", "tensor", (), release(PURE))
    assert "pure" in (refusal.value.hint or "")


def test_flavor_too_small_for_the_level_is_refused(release: Release) -> None:
    for wish in ("", "pure"):
        with pytest.raises(PolicyRefusal, match="STO-K097"):
            choose_flavor(wish, "numeric", (), release(PURE))


@pytest.mark.parametrize("field", ["withdrawn_flavors", "denied"])
def test_withdrawn_flavor_is_refused_by_its_own_code(
    release: Release, field: str
) -> None:
    trust = release(PURE, NUMERIC, **{field: frozenset({PURE.flavor})})
    with pytest.raises(PolicyRefusal, match="STO-K097"):
        choose_flavor("pure", "pure", (), trust)
    assert choose_flavor("", "pure", (), trust) == NUMERIC.flavor


def test_withdrawn_installed_flavor_is_refused_too(release: Release) -> None:
    digest = find_flavor("pure").digest
    trust = release(withdrawn_flavors=frozenset({digest}))
    with pytest.raises(PolicyRefusal, match="STO-K097"):
        choose_flavor("pure", "pure", (), trust)
    assert choose_flavor("", "pure", (), trust) == find_flavor("numeric").digest


def test_flavor_of_an_unknown_level_serves_nothing(release: Release) -> None:
    with pytest.raises(PolicyRefusal, match="STO-K097"):
        choose_flavor("", "pure", (), release(part("next", level="quantum")))


def test_launcher_and_verifier_are_no_flavors(release: Release) -> None:
    plain = PartFile("stoilo-part/1", "verifier", X86, "1", 1, PURE.archive)
    assert flavor_parts(release(plain)) == ()


def test_archive_of_the_platform_goes_out_with_the_task(
    release: Release, tmp_path: Path
) -> None:
    trust = release(PURE, part("pure", platform=ARM), NUMERIC)
    digest = PURE.archive.sha256
    archive = tmp_path / f"targets/flavor/pure/{digest}.{X86}.tar.xz"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"x" * PURE.archive.size)
    file = FlavorFiles(tmp_path, lambda: trust, X86).of(PURE.flavor)
    assert file is not None
    assert (file.open_name, file.digest, file.sticky) == (FLAVOR, digest, True)
    assert file.source == archive
    assert open_name_bound(FLAVOR) > 0


def test_archive_of_the_policy_roles_flavor_goes_out_from_its_folder(
    release: Release, tmp_path: Path
) -> None:
    made = msgspec.structs.replace(NUMERIC, role="policy")
    archive = (
        tmp_path / f"targets/policy/{made.archive.sha256}.flavor-numeric.{X86}.tar.xz"
    )
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"x" * made.archive.size)
    file = FlavorFiles(tmp_path, lambda: release(made), X86).of(made.flavor)
    assert file is not None
    assert file.source == archive


def offered(release: Release, directory: Path, data: bytes) -> WorkunitFile:
    """Publish `data` as the archive of flavor pure, and return what goes out."""
    digest = content_digest(data)
    path = directory / f"targets/flavor/pure/{digest}.{X86}.tar.xz"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    file = ArchiveFile(f"{X86}.tar.xz", len(data), digest)
    trust = release(msgspec.structs.replace(PURE, archive=file))
    found = FlavorFiles(directory, lambda: trust, X86).of(PURE.flavor)
    assert found is not None
    return found


def test_archive_says_how_large_its_tree_will_be(
    release: Release, tmp_path: Path
) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "library").write_bytes(b"x" * 70_000)
    tree = describe_tree(tmp_path / "tree", "pure", X86)
    stream = io.BytesIO()
    write_archive(tmp_path / "tree", tree, stream)
    data = lzma.compress(stream.getvalue())
    assert offered(release, tmp_path, data).unpacked_bytes == 70_000


def test_unreadable_archive_is_taken_for_a_usual_one(
    release: Release, tmp_path: Path
) -> None:
    data = b"no archive " * 100
    assert offered(release, tmp_path, data).unpacked_bytes == USUAL_GROWTH * len(data)


@pytest.mark.parametrize("content", [None, b"cut"])
def test_lost_archive_keeps_no_other_task_waiting(
    release: Release,
    tmp_path: Path,
    content: bytes | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = tmp_path / "targets" / "flavor" / "pure"
    folder.mkdir(parents=True)
    if content is not None:
        (folder / f"{PURE.archive.sha256}.{X86}.tar.xz").write_bytes(content)
    assert FlavorFiles(tmp_path, lambda: release(PURE), X86).of(PURE.flavor) is None
    assert "publish again" in caplog.text


def test_without_an_archive_for_the_platform_none_goes_out(
    release: Release, tmp_path: Path
) -> None:
    files = FlavorFiles(tmp_path, lambda: release(part("pure", platform=ARM)), X86)
    assert files.of(PURE.flavor) is None


def test_archives_of_this_platform_are_kept_between_tasks(release: Release) -> None:
    trust = release(PURE, part("pure", platform=ARM))
    assert kept_archives(trust, X86) == {PURE.archive.sha256}


def test_level_that_the_release_does_not_certify_is_refused(release: Release) -> None:
    pure, numeric = load_levels()[:2]
    levels = ReleasedLevels(lambda: release(levels=(pure,)))
    assert levels("pure") == pure
    with pytest.raises(PolicyRefusal, match="STO-K094"):
        levels(numeric.name)

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoilo.audit.read.archive import ArchiveSource
from stoilo.audit.read.export import export_log
from stoilo.audit.read.reader import verify_log
from stoilo.audit.read.search import find_entries, parse_query, search_log
from stoilo.audit.read.view import open_log
from stoilo.core.errors import StoiloError, TrustError, UsageError
from tests.support.auditlog import SAMPLE_SOURCE, SampleLog, write_sample_log
from tests.support.faulty_log import LogKey

FORMS = ["bundle", "bundle.tar"]


@pytest.fixture(scope="module", params=FORMS)
def bundle(
    request: pytest.FixtureRequest,
    sample: SampleLog,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    target = tmp_path_factory.mktemp("export") / str(request.param)
    report = export_log(sample.data_dir, target, sample.policy, sources=None)
    assert (report.size, report.records, report.missing) == (sample.size, 9, 0)
    assert report.sources == 1
    assert [path.name for path in target.parent.iterdir()] == [target.name]
    return target


def test_bundle_verifies_without_the_log(sample: SampleLog, bundle: Path) -> None:
    report = verify_log(bundle, sample.policy)
    assert (report.size, report.origin) == (sample.size, "log.test/t")
    assert verify_log(bundle).own_policy


def test_bundle_under_another_key_is_refused(bundle: Path) -> None:
    with pytest.raises(TrustError, match="STO-L011"):
        verify_log(bundle, LogKey("log.test/t", b"\4" * 32).policy)


def test_bundle_is_read_like_the_log(sample: SampleLog, bundle: Path) -> None:
    log, copy = open_log(sample.data_dir), open_log(bundle)
    for index in (0, 255, 256, *sample.admissions, sample.size - 1):
        assert copy.entry(index) == log.entry(index)
    assert find_entries(copy, "task-3") == find_entries(log, "task-3")
    query = parse_query(["kind:result"])
    assert search_log(copy, query) == search_log(log, query)


def test_bundle_holds_records_and_chosen_sources_by_digest(
    sample: SampleLog, bundle: Path
) -> None:
    log = open_log(bundle)
    assert log.source.published_source(sample.source) == SAMPLE_SOURCE
    assert log.source.published_source("0" * 64) is None
    entry = log.entry(sample.size - 1)
    assert entry.leaf is not None
    assert log.source.record(entry.leaf.digest) == entry.record_text
    assert log.source.record("0" * 64) is None


@pytest.mark.parametrize(("chosen", "count"), [("0" * 64, 0), (None, 1)])
def test_only_chosen_sources_travel(
    sample: SampleLog, tmp_path: Path, chosen: str | None, count: int
) -> None:
    wanted = frozenset({chosen or sample.source})
    report = export_log(sample.data_dir, tmp_path / "b.tar", sources=wanted)
    assert report.sources == count


def test_export_is_the_same_bytes_every_time(sample: SampleLog, tmp_path: Path) -> None:
    for name in ("a.tar", "b.tar"):
        export_log(sample.data_dir, tmp_path / name)
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


@pytest.mark.parametrize("name", FORMS)
def test_nothing_is_overwritten(sample: SampleLog, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(UsageError, match="STO-L064"):
        export_log(sample.data_dir, tmp_path / name)
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize("name", FORMS)
def test_damaged_log_leaves_no_bundle(
    sample: SampleLog, tmp_path: Path, name: str
) -> None:
    copy = shutil.copytree(sample.data_dir / "audit/log", tmp_path / "log")
    tile = copy / "tile/0/000"
    tile.write_bytes(bytes(8192))
    with pytest.raises(TrustError, match="STO-L03"):
        export_log(copy, tmp_path / name, sample.policy)
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


@pytest.mark.parametrize("plain", [0, 243, 244, 499, 500])
def test_bundles_at_tile_boundaries_verify(tmp_path: Path, plain: int) -> None:
    """Thirteen leaves are the sample's: 13, 256, 257, 512 and 513 in all."""
    sample = write_sample_log(tmp_path / "data", plain=plain)
    export_log(sample.data_dir, tmp_path / "b.tar", sample.policy)
    assert verify_log(tmp_path / "b.tar", sample.policy).size == plain + 13


@pytest.fixture(scope="module")
def archive(sample: SampleLog, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("archive") / "b.tar"
    export_log(sample.data_dir, target, sample.policy, sources=None)
    return target


def read_all(path: Path) -> None:
    """Read an archive as all readers together do."""
    source = ArchiveSource(path)
    source.checkpoint(), source.policy()
    for tile in source.stored():
        source.tile(tile)
    for number in range(3):
        source.records_of_tile(number)


@settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.data())
def test_any_changed_header_is_read_or_refused(
    archive: Path, tmp_path: Path, data: st.DataObject
) -> None:
    content = bytearray(archive.read_bytes())
    block = data.draw(st.integers(0, len(content) // 512 - 1))
    for _ in range(data.draw(st.integers(1, 3))):
        at = block * 512 + data.draw(st.integers(0, 511))
        content[at] = data.draw(st.integers(0, 255))
    path = tmp_path / "changed.tar"
    path.write_bytes(content[: data.draw(st.just(len(content)) | st.integers(0, 9999))])
    try:
        read_all(path)
    except StoiloError:
        pass


def test_control_an_unchanged_archive_is_read(archive: Path) -> None:
    read_all(archive)


@pytest.mark.parametrize(
    ("at", "new"),
    [
        (0, b"../../etc/passwd"),
        (0, b"/checkpoint"),
        (156, b"2"),
        (156, b"x"),
        (157, b"target"),
        (345, b"prefix"),
        (124, b"77777777777"),
        (124, b"\x80\0\0\0\0\0\0\0\0\0\1"),
    ],
)
def test_header_that_is_not_plain_is_refused(
    archive: Path, tmp_path: Path, at: int, new: bytes
) -> None:
    content = bytearray(archive.read_bytes())
    content[at : at + len(new)] = new
    head = content[:512]
    checksum = sum(head[:148]) + sum(head[156:]) + 8 * ord(" ")
    content[148:156] = b"%06o\0 " % checksum
    path = tmp_path / "forged.tar"
    path.write_bytes(content)
    with pytest.raises(TrustError, match="STO-L065"):
        ArchiveSource(path)


def test_file_given_twice_or_cut_is_refused(archive: Path, tmp_path: Path) -> None:
    content = archive.read_bytes()
    path = tmp_path / "forged.tar"
    for forged in (content[:1024] + content, content[:-1024], content[:5000]):
        path.write_bytes(forged)
        with pytest.raises(TrustError, match="STO-L065"):
            ArchiveSource(path)


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\3\4" * 500])
def test_other_file_is_no_log(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(UsageError, match="STO-L001"):
        verify_log(tmp_path / "file")

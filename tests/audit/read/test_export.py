import shutil
from pathlib import Path

import pytest

from stoilo.audit.format.records import render_record
from stoilo.audit.read.export import export_log
from stoilo.audit.read.reader import open_log, verify_log
from stoilo.audit.read.search import find_entries, parse_query, search_log
from stoilo.core.errors import TrustError, UsageError
from tests.support.auditlog import SAMPLE_SOURCE, SampleLog, write_sample_log
from tests.support.faulty_log import LogKey


@pytest.fixture(scope="module")
def bundle(
    sample: SampleLog,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    target = tmp_path_factory.mktemp("export") / "bundle"
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
    assert log.source.record(entry.leaf.digest) == render_record(entry.record)
    assert log.source.record("0" * 64) is None


@pytest.mark.parametrize(("chosen", "count"), [("0" * 64, 0), (None, 1)])
def test_only_chosen_sources_travel(
    sample: SampleLog, tmp_path: Path, chosen: str | None, count: int
) -> None:
    wanted = frozenset({chosen or sample.source})
    report = export_log(sample.data_dir, tmp_path / "b", sources=wanted)
    assert report.sources == count


def test_export_is_the_same_bytes_every_time(sample: SampleLog, tmp_path: Path) -> None:
    for name in ("a", "b"):
        export_log(sample.data_dir, tmp_path / name)
    found = [
        {
            str(path.relative_to(tmp_path / name)): path.read_bytes()
            for path in (tmp_path / name).rglob("*")
            if path.is_file()
        }
        for name in ("a", "b")
    ]
    assert found[0] == found[1]


def test_nothing_is_overwritten(sample: SampleLog, tmp_path: Path) -> None:
    (tmp_path / "b").write_text("mine")
    with pytest.raises(UsageError, match="STO-U004"):
        export_log(sample.data_dir, tmp_path / "b")
    assert (tmp_path / "b").read_text() == "mine"


def test_damaged_log_leaves_no_bundle(sample: SampleLog, tmp_path: Path) -> None:
    copy = shutil.copytree(sample.data_dir / "audit/log", tmp_path / "log")
    tile = copy / "tile/0/000"
    tile.write_bytes(bytes(8192))
    with pytest.raises(TrustError, match="STO-L03"):
        export_log(copy, tmp_path / "b", sample.policy)
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


@pytest.mark.parametrize("plain", [0, 243, 244, 499, 500])
def test_bundles_at_tile_boundaries_verify(tmp_path: Path, plain: int) -> None:
    """Thirteen leaves are the sample's: 13, 256, 257, 512 and 513 in all."""
    sample = write_sample_log(tmp_path / "data", plain=plain)
    export_log(sample.data_dir, tmp_path / "b", sample.policy)
    assert verify_log(tmp_path / "b", sample.policy).size == plain + 13


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\3\4" * 500])
def test_other_file_is_no_log(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(UsageError, match="STO-L001"):
        verify_log(tmp_path / "file")

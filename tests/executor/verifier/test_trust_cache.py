"""A host's memory of metadata that is damaged, cut or exchanged: fetched anew or refused."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoilo.core.errors import InternalError
from tests.support.gate import DAY_S, NOW
from tests.support.metadata import ORIGIN, MetadataBench

FILES = (
    "timestamp.json",
    "snapshot.json",
    "targets.json",
    "gate.json",
    "revocation.json",
    "root_history/2.root.json",
)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> tuple[MetadataBench, Path]:
    bench = MetadataBench(NOW)
    bench.publish_root()
    cache = tmp_path_factory.mktemp("memory") / "cache"
    assert bench.load(cache) == ORIGIN
    return bench, cache


def copied(cache: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(cache, tmp_path / "copy", symlinks=True))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"[" * 9000, b"null"])
def test_damaged_memory_is_fetched_again(
    tmp_path: Path, seen: tuple[MetadataBench, Path], name: str, data: bytes
) -> None:
    bench, cache = seen[0], copied(seen[1], tmp_path)
    (cache / name).write_bytes(data)
    assert bench.load(cache) == ORIGIN
    assert (cache / name).read_bytes() == (seen[1] / name).read_bytes()


@pytest.mark.parametrize("name", FILES)
def test_lost_memory_is_fetched_again(
    tmp_path: Path, seen: tuple[MetadataBench, Path], name: str
) -> None:
    bench, cache = seen[0], copied(seen[1], tmp_path)
    (cache / name).unlink()
    assert bench.load(cache) == ORIGIN


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_changed_byte_in_memory_lets_nothing_in(
    tmp_path_factory: pytest.TempPathFactory,
    seen: tuple[MetadataBench, Path],
    data: st.DataObject,
) -> None:
    bench, cache = seen[0], copied(seen[1], tmp_path_factory.mktemp("one"))
    file = cache / data.draw(st.sampled_from(FILES))
    text = bytearray(file.read_bytes())
    place = data.draw(st.integers(0, len(text) - 1))
    text[place] ^= data.draw(st.integers(1, 255))
    file.write_bytes(text)
    assert bench.load(cache) == ORIGIN
    shutil.rmtree(cache.parent)


def test_memory_made_by_another_root_is_worth_nothing(
    tmp_path: Path, seen: tuple[MetadataBench, Path]
) -> None:
    """Control: the stranger's memory is sound, for the stranger's root."""
    bench, stranger = seen[0], MetadataBench(NOW)
    stranger.publish_root()
    cache = tmp_path / "cache"
    assert stranger.load(cache) == ORIGIN
    bench.publish_targets("revocation")
    bench.publish()
    assert bench.load(cache) == ORIGIN
    stranger.files = {}
    assert stranger.load(cache) != ORIGIN


def test_memory_alone_is_no_release(seen: tuple[MetadataBench, Path]) -> None:
    bench, cache = seen
    empty, empty.files = MetadataBench(NOW), {}
    empty.trusted = bench.trusted
    assert empty.load(cache) in {"STO-K013", "STO-K010"}


@pytest.mark.parametrize("name", ["timestamp.json", "root_history"])
def test_place_that_cannot_be_written_is_this_machines_trouble(
    tmp_path: Path, name: str
) -> None:
    """A directory in a file's place, and a file in a directory's."""
    bench, cache = MetadataBench(NOW), tmp_path / "cache"
    cache.mkdir()
    (cache / name).mkdir() if "." in name else (cache / name).touch()
    with pytest.raises(InternalError, match="STO-X008"):
        bench.load(cache)


def test_newer_root_in_memory_binds_also_without_the_file(tmp_path: Path) -> None:
    """Who hides the newest root from a host that has seen it gains nothing."""
    bench, cache = MetadataBench(NOW), tmp_path / "cache"
    stolen = bench.keys["timestamp"]
    bench.keys["timestamp"] = bench.make_keys(1)
    bench.name_keys(bench.root, "timestamp", 1)
    bench.publish_root()
    bench.publish_timestamp()
    assert bench.load(cache) == ORIGIN
    del bench.files["metadata/2.root.json"]
    bench.publish_timestamp(signers=stolen)
    assert bench.load(cache) == "STO-K010"
    assert bench.load() == ORIGIN  # control: a host without memory believes it


def test_memory_past_its_end_is_not_used(tmp_path: Path) -> None:
    bench, cache = MetadataBench(NOW), tmp_path / "cache"
    assert bench.load(cache) == ORIGIN
    assert bench.load(cache, late_s=8 * DAY_S) == "STO-K011"


def test_without_memory_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = MetadataBench(NOW)
    bench.publish_root()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert bench.load(None) == ORIGIN
    assert list(tmp_path.iterdir()) == []

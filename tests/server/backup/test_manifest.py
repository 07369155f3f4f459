"""A manifest names files below the directory, or is refused."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import StoiloError
from stoilo.server.backup.manifest import (
    FORMAT,
    BackupFile,
    LogPlace,
    Manifest,
    parse_manifest,
    render_manifest,
)

DIGEST = "0" * 64
GOOD = Manifest(
    format=FORMAT,
    version="1",
    taken_at=1,
    offline_keys=False,
    development=True,
    mariadb=False,
    log=LogPlace("a.b/c", 3, DIGEST, 2),
    files=(BackupFile("audit/log/tile/0/000.p/5", 1, DIGEST),),
)


def with_files(*files: BackupFile) -> bytes:
    return render_manifest(msgspec.structs.replace(GOOD, files=files))


def test_manifest_comes_back() -> None:
    assert parse_manifest(render_manifest(GOOD)) == GOOD


@pytest.mark.parametrize(
    "path", ["../x", "/etc/passwd", "a/../b", "a//b", "", ".hidden", "a\nb", "a/" * 20]
)
def test_path_that_leaves_the_directory_is_refused(path: str) -> None:
    with pytest.raises(StoiloError, match="STO-B065"):
        parse_manifest(with_files(BackupFile(path, 1, DIGEST)))


@pytest.mark.parametrize(
    "files",
    [
        (BackupFile("a", -1, DIGEST),),
        (BackupFile("a", 1, "xyz"),),
        (BackupFile("a", 1, DIGEST), BackupFile("a", 1, DIGEST)),
    ],
)
def test_file_without_sense_is_refused(files: tuple[BackupFile, ...]) -> None:
    with pytest.raises(StoiloError, match="STO-B065"):
        parse_manifest(with_files(*files))


def test_other_format_is_refused() -> None:
    other = msgspec.structs.replace(GOOD, format="stoilo-backup/9")
    with pytest.raises(StoiloError, match="STO-B064"):
        parse_manifest(render_manifest(other))


@given(st.binary(max_size=300) | st.text(max_size=100).map(str.encode))
def test_any_bytes_end_in_our_error(data: bytes) -> None:
    with pytest.raises(StoiloError, match="STO-B064"):
        parse_manifest(data)

from __future__ import annotations

import io
import lzma
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import TrustError
from stoilo.core.frozen_tree import XzReader, read_archive, render_tree, tree_digest
from stoilo.flavors.packing import XzWriter, describe_tree, write_archive

LONG = "deep/" * 20 + "er/file.py"


def make_tree(directory):
    for path, data in {"a": b"one", "empty": b"", LONG: b"x" * 700}.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(data)
    (directory / "a").chmod(0o755)
    return describe_tree(directory, "pure", "x86_64-linux")


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tree")
    tree = make_tree(directory)
    stream = io.BytesIO()
    write_archive(directory, tree, stream)
    return stream.getvalue(), tree_digest(render_tree(tree))


def contents(data, digest):
    return {
        member.file.path: b"".join(member.chunks)
        for member in read_archive(io.BytesIO(data), digest)
    }


def refusal(data, digest):
    with pytest.raises(TrustError) as caught:
        contents(data, digest)
    return caught.value.code


def test_archive_reads_back_manifest_first(packed):
    files = contents(*packed)
    assert list(files) == ["MANIFEST", "a", LONG, "empty"]
    assert files["a"] == b"one"
    assert files[LONG] == b"x" * 700


def test_archive_is_plain_ustar_to_other_readers(packed):
    with tarfile.open(fileobj=io.BytesIO(packed[0])) as tar:
        members = tar.getmembers()
    assert [m.name for m in members] == ["MANIFEST", "a", LONG, "empty"]
    assert {(m.uid, m.gid, m.uname, m.mtime) for m in members} == {
        (0, 0, "", 315532800)
    }
    assert [oct(m.mode) for m in members] == ["0o644", "0o755", "0o644", "0o644"]
    assert all(m.isreg() and not m.pax_headers for m in members)


def test_archive_of_another_tree_is_refused(packed):
    assert refusal(packed[0], "0" * 64) == "STO-F006"


def test_every_truncation_is_refused(packed):
    data, digest = packed
    for size in range(0, len(data), 101):
        assert refusal(data[:size], digest) == "STO-F006"


@pytest.mark.parametrize("more", [b"x", bytes(512), bytes(10240)])
def test_bytes_behind_the_end_are_refused(packed, more):
    assert refusal(packed[0] + more, packed[1]) == "STO-F006"


@given(st.data())
def test_any_changed_byte_is_refused(packed, data):
    archive, digest = packed
    place = data.draw(st.integers(0, len(archive) - 1))
    value = data.draw(st.integers(1, 255))
    changed = bytearray(archive)
    changed[place] ^= value
    code = refusal(bytes(changed), digest)
    assert code == "STO-F006"


@pytest.mark.parametrize("kind", [b"2", b"1", b"5", b"L", b"x", b"g", b"\0"])
def test_member_of_another_type_is_refused(packed, kind):
    data, digest = bytearray(packed[0]), packed[1]
    place = data.index(b"a\0".ljust(100, b"\0") + b"0000755")
    data[place + 156 : place + 157] = kind
    assert refusal(bytes(data), digest) == "STO-F006"


def test_file_changed_since_it_was_described_is_refused(tmp_path):
    tree = make_tree(tmp_path)
    (tmp_path / "a").write_bytes(b"two")
    with pytest.raises(TrustError) as caught:
        write_archive(tmp_path, tree, io.BytesIO())
    assert caught.value.code == "STO-F006"


def test_installed_files_make_the_same_tree_again(tmp_path, packed):
    for member in read_archive(io.BytesIO(packed[0]), packed[1]):
        path = tmp_path / member.file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(member.chunks))
        path.chmod(0o755 if member.file.executable else 0o644)
    again = describe_tree(tmp_path, "pure", "x86_64-linux")
    assert tree_digest(render_tree(again)) == packed[1]
    assert (tmp_path / "MANIFEST").read_bytes() == render_tree(again)


def compress(data):
    stream = io.BytesIO()
    writer = XzWriter(stream)
    writer.write(data)
    writer.close()
    return stream.getvalue()


def expand(data):
    reader = XzReader(io.BytesIO(data))
    return b"".join(iter(lambda: reader.read(1000), b""))


def test_compressed_stream_reads_back_in_pieces():
    data = bytes(range(256)) * 5000
    assert expand(compress(data)) == data
    assert lzma.decompress(compress(data)) == data


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"not xz",
        compress(b"abc")[:-1],
        compress(b"abc") + b"x",
        compress(b"abc") + compress(b"abc"),
        lzma.compress(b"abc", lzma.FORMAT_ALONE),
        lzma.compress(b"abc", preset=9),
    ],
)
def test_stream_in_another_form_is_refused(broken):
    with pytest.raises(TrustError) as caught:
        expand(broken)
    assert caught.value.code == "STO-F006"


def test_bomb_is_never_held_whole():
    reader = XzReader(io.BytesIO(lzma.compress(bytes(200 << 20), preset=0)))
    assert len(reader.read(1000)) <= 1000

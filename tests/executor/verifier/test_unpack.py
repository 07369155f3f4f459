"""Unpacking once: digest first, complete or not at all, several at once, killed any time."""

import hashlib
import io
import lzma
import os
import random
import signal
import subprocess
import sys
import threading

import pytest

from stoilo.core.errors import PolicyRefusal, TrustError
from stoilo.executor.verifier.trees import WantedTree, check_tree, hold_tree
from tests.support.frozen import FILES, make_tree

CAP = 10**9


@pytest.fixture
def home(tmp_path):
    (tmp_path / "flavors").mkdir(mode=0o700)
    return tmp_path / "flavors"


@pytest.fixture
def made(tmp_path):
    return make_tree(tmp_path / "tree")


def unpack(home, made, archive=None, cap=CAP):
    with hold_tree(home, made.wanted, archive or made.archive, cap) as place:
        return check_tree(place, made.wanted.digest)


def names(home):
    return sorted(path.name for path in home.iterdir() if path.suffix != ".lock")


def test_archive_becomes_a_tree_named_by_its_digest(home, made):
    unpack(home, made)
    assert names(home) == [made.wanted.digest]
    assert (home / made.wanted.digest / "stoilo-runtime").stat().st_mode & 0o111


def test_second_start_needs_no_archive(home, made):
    unpack(home, made)
    made.archive.unlink()
    unpack(home, made)


def test_first_start_without_an_archive_is_refused(home, made):
    with pytest.raises(TrustError) as caught, hold_tree(home, made.wanted, None, CAP):
        pass
    assert caught.value.code == "STO-F006"


@pytest.mark.parametrize("change", ["truncated", "longer", "other byte", "swapped"])
def test_other_archive_is_refused_before_it_is_decompressed(
    home, made, tmp_path, monkeypatch, change
):
    data = made.archive.read_bytes()
    changed = {
        "truncated": data[:-1],
        "longer": data + b"\0",
        "other byte": data[:100] + bytes([data[100] ^ 1]) + data[101:],
        "swapped": make_tree(tmp_path / "b", FILES | {"b": b"b"}).archive.read_bytes(),
    }[change]
    made.archive.write_bytes(changed)
    monkeypatch.setattr(lzma, "LZMADecompressor", None)
    with pytest.raises(TrustError) as caught:
        unpack(home, made)
    assert caught.value.code == "STO-F006"
    assert names(home) == []


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_archive_that_is_no_plain_file_is_refused(home, made, tmp_path, kind):
    odd = tmp_path / "odd"
    if kind == "link":
        odd.symlink_to(made.archive)
    elif kind == "pipe":
        os.mkfifo(odd)
    else:
        odd.mkdir()
    with pytest.raises(TrustError) as caught:
        unpack(home, made, odd)
    assert caught.value.code == "STO-F006"


def test_archive_of_another_tree_is_refused_though_its_digest_was_signed(
    home, made, tmp_path
):
    other = make_tree(tmp_path / "b", FILES | {"b": b"b"})
    wanted = WantedTree(
        made.wanted.digest, other.wanted.archive_digest, other.wanted.archive_bytes
    )
    with (
        pytest.raises(TrustError) as caught,
        hold_tree(home, wanted, other.archive, CAP),
    ):
        pass
    assert caught.value.code == "STO-F006"
    assert names(home) == []


def test_tree_larger_than_the_cap_is_not_for_this_host(home, made):
    with pytest.raises(PolicyRefusal) as caught:
        unpack(home, made, cap=made.size - 1)
    assert caught.value.code == "STO-X013"
    assert names(home) == []


def test_least_used_tree_makes_room(home, made, tmp_path):
    unpack(home, made)
    other = make_tree(tmp_path / "b", FILES | {"b": b"b"})
    unpack(home, other, cap=other.size + 500)
    assert names(home) == [other.wanted.digest]


def test_many_at_once_unpack_once(home, made):
    threads = [threading.Thread(target=unpack, args=(home, made)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert names(home) == [made.wanted.digest]


def test_leftovers_of_the_killed_are_swept(home, made):
    left = home / f".{made.wanted.digest}.0123.tmp"
    (left / "deep").mkdir(parents=True)
    unpack(home, made)
    assert names(home) == [made.wanted.digest]


CHILD = """
import sys
from pathlib import Path
from stoilo.executor.verifier.trees import WantedTree, hold_tree
home, archive, *wanted = sys.argv[1:]
wanted = WantedTree(wanted[0], wanted[1], int(wanted[2]))
print("ready", flush=True)
with hold_tree(Path(home), wanted, Path(archive), 10**9):
    print("held", flush=True)
"""


def start(home, made, prefix=()):
    wanted = made.wanted
    words = [home, made.archive, wanted.digest, wanted.archive_digest]
    return subprocess.Popen(
        [
            sys.executable,
            *prefix,
            "-c",
            CHILD,
            *map(str, words),
            str(wanted.archive_bytes),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )


def written(home):
    """Count the files of noise so far; a directory may be renamed meanwhile."""
    names = [name for _, _, files in os.walk(home) for name in files]
    return sum(name.startswith("n") for name in names)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_killed_in_the_middle_leaves_all_or_nothing(home, tmp_path, seed, wait_until):
    noise = random.Random(seed)
    files = FILES | {f"n{i}": noise.randbytes(10_000) for i in range(20)}
    made = make_tree(tmp_path / "big", files)
    process = start(home, made)
    process.stdout.readline()
    some = noise.randrange(0, 22)
    wait_until(lambda: written(home) >= some or process.poll() is not None)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    place = home / made.wanted.digest
    if place.exists():
        check_tree(place, made.wanted.digest)
    unpack(home, made)
    assert names(home) == [made.wanted.digest]


DISK = """
import sys
from pathlib import Path
from stoilo.core.errors import StoiloError
from stoilo.sandbox.kernel import calls
from stoilo.executor.verifier.trees import WantedTree, hold_tree
home, archive, options, *wanted = sys.argv[1:]
try:
    calls.unshare(0x00020000)
    calls.mount("none", "/", "", 0x4000 | 0x40000, "")
    flags = 1 if options == "ro" else 0
    calls.mount("tmpfs", home, "tmpfs", flags, "" if flags else options)
except OSError:
    sys.exit(77)
wanted = WantedTree(wanted[0], wanted[1], int(wanted[2]))
try:
    with hold_tree(Path(home), wanted, Path(archive), 10**9):
        pass
except StoiloError as error:
    print(error.code, [p.name for p in Path(home).iterdir() if p.suffix != ".lock"])
"""


@pytest.mark.parametrize(
    ("options", "code"), [("size=32k", "STO-X008"), ("ro", "STO-X008")]
)
def test_disk_that_is_full_or_read_only_is_named(home, tmp_path, options, code):
    files = {"stoilo-runtime": random.Random(1).randbytes(100_000)}
    made = make_tree(tmp_path / "big", files)
    wanted = made.wanted
    words = [home, made.archive, options, wanted.digest, wanted.archive_digest]
    done = subprocess.run(
        [sys.executable, "-c", DISK, *map(str, words), str(wanted.archive_bytes)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip("no mount namespace here")
    assert done.stdout == f"{code} []\n", done.stderr


def test_bomb_stops_at_the_size_that_its_list_names(home, made, tmp_path):
    bomb = io.BytesIO()
    with lzma.open(bomb, "wb") as stream:
        stream.write(lzma.decompress(made.archive.read_bytes()) + bytes(50_000_000))
    archive = tmp_path / "bomb.tar.xz"
    archive.write_bytes(bomb.getvalue())
    digest = hashlib.sha256(bomb.getvalue()).hexdigest()
    wanted = WantedTree(made.wanted.digest, digest, len(bomb.getvalue()))
    with pytest.raises(TrustError), hold_tree(home, wanted, archive, CAP):
        pass
    assert names(home) == []

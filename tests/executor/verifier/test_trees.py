"""Unpacked trees: every byte counted, the least used evicted, none in use."""

import os
import shutil

import pytest

from stoilo.core.errors import TrustError
from stoilo.executor.verifier.trees import (
    check_tree,
    evict_trees,
    hold_tree,
    lock_tree,
    set_aside,
    tree_cap,
)
from tests.support.frozen import FILES, make_tree

CAP = 10**9


@pytest.fixture
def home(tmp_path):
    (tmp_path / "flavors").mkdir(mode=0o700)
    return tmp_path / "flavors"


@pytest.fixture
def made(tmp_path):
    return make_tree(tmp_path / "tree")


@pytest.fixture
def tree(home, made):
    with hold_tree(home, made.wanted, made.archive, CAP) as place:
        return place


def unpack(home, directory, files, used):
    """Unpack another tree that was last used at `used`; returns its place."""
    made = make_tree(directory, files)
    with hold_tree(home, made.wanted, made.archive, CAP) as place:
        pass
    os.utime(home / f"{made.wanted.digest}.lock", (used, used))
    return place


def test_unpacked_tree_is_whole(tree, made):
    assert check_tree(tree, made.wanted.digest).size == made.size


def change(path):
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"!")


def link(path):
    shutil.copy(path, path.parent.parent / "elsewhere")
    path.unlink()
    path.symlink_to("../elsewhere")


def lengthen(path):
    path.chmod(0o755)
    path.write_bytes(path.read_bytes() + b"x")


def link_folder(tree):
    (tree / "_internal/deep").rename(tree.parent / "deep")
    (tree / "_internal/deep").symlink_to(tree.parent / "deep")


def pipe(path):
    path.unlink()
    os.mkfifo(path)


def to_directory(path):
    path.unlink()
    path.mkdir()


DAMAGES = {
    "changed": lambda tree: change(tree / "_internal/libone.so"),
    "longer": lambda tree: lengthen(tree / "stoilo-runtime"),
    "missing": lambda tree: (tree / "_internal/libone.so").unlink(),
    "extra file": lambda tree: (tree / "_internal/libz.so.1").write_bytes(b""),
    "extra at the top": lambda tree: (tree / "libz.so.1").write_bytes(b""),
    "extra directory": lambda tree: (tree / "_internal/more").mkdir(),
    "extra link": lambda tree: (tree / "_internal/l").symlink_to("libone.so"),
    "linked": lambda tree: link(tree / "_internal/libone.so"),
    "linked folder": link_folder,
    "no program": lambda tree: (tree / "stoilo-runtime").chmod(0o444),
    "other list": lambda tree: change(tree / "MANIFEST"),
    "no list": lambda tree: (tree / "MANIFEST").unlink(),
    "directory for a list": lambda tree: to_directory(tree / "MANIFEST"),
    "directory for a file": lambda tree: to_directory(tree / "stoilo-runtime"),
    "pipe": lambda tree: pipe(tree / "_internal/libone.so"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_tree_is_refused(tree, made, damage):
    DAMAGES[damage](tree)
    with pytest.raises(TrustError) as caught:
        check_tree(tree, made.wanted.digest)
    assert caught.value.code == "STO-F006"


def test_link_to_a_whole_tree_is_refused(tree, made):
    (tree.parent / "other").symlink_to(tree)
    with pytest.raises(TrustError):
        check_tree(tree.parent / "other", made.wanted.digest)


def test_tree_in_use_is_not_set_aside(home, tree, made):
    with lock_tree(home, made.wanted.digest, alone=False):
        assert not set_aside(home, made.wanted.digest)
    assert tree.is_dir()
    assert set_aside(home, made.wanted.digest)
    assert not tree.exists()


def test_least_recently_used_goes_first(home, tmp_path):
    places = [
        unpack(home, tmp_path / f"t{n}", FILES | {"n": bytes([n])}, used)
        for n, used in enumerate((300, 100, 200))
    ]
    size = sum(map(len, FILES.values())) + 1
    evict_trees(home, 3 * size + 1000, needed=size)
    assert [place.exists() for place in places] == [True, False, True]


def test_tree_in_use_survives_eviction(home, tree, made):
    with lock_tree(home, made.wanted.digest, alone=False):
        assert evict_trees(home, 10, needed=5) < 0
    assert tree.is_dir()


def test_leftovers_of_another_tree_are_swept_unless_somebody_is_at_work(home, tree):
    idle, busy = "a" * 64, "b" * 64
    for digest in (idle, busy):
        (home / f".{digest}.0123.tmp" / "deep").mkdir(parents=True)
    with lock_tree(home, busy, alone=True):
        evict_trees(home, CAP)
    assert [path.name[1:65] for path in home.glob(".*.tmp")] == [busy]
    assert tree.is_dir()


def test_use_is_noted(home, tree, made):
    lock = home / f"{made.wanted.digest}.lock"
    os.utime(lock, (5, 5))
    with hold_tree(home, made.wanted, None, CAP):
        pass
    assert lock.stat().st_mtime > 5
    assert tree.is_dir()


@pytest.mark.parametrize(
    ("disk", "expected"), [(None, 100), (50, 25), (10_000, 100), (0, 0)]
)
def test_preference_of_the_disk_only_lowers_the_cap(disk, expected):
    assert tree_cap(disk, own=100) == expected

"""An unpacked tree is compared with its manifest at every start: what differs refuses."""

import os
import resource
import shutil
from pathlib import Path

import pytest


@pytest.fixture
def tree(slot) -> Path:
    assert slot.starts()
    return slot.tree


def replace_by(path, make):
    path.unlink()
    make(path)


def grow(path):
    with path.open("ab") as file:
        file.write(b"\0")


def flip(path, at=-1):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


CHANGES = {
    "changed byte": lambda tree: flip(tree / "_internal/lib/large"),
    "changed program": lambda tree: flip(tree / "stoilo-verifier", 100),
    "changed manifest": lambda tree: flip(tree / "MANIFEST", -2),
    "emptied manifest": lambda tree: (tree / "MANIFEST").write_bytes(b""),
    "longer manifest": lambda tree: grow(tree / "MANIFEST"),
    "huge manifest": lambda tree: os.truncate(tree / "MANIFEST", 1 << 40),
    "longer file": lambda tree: grow(tree / "_internal/block"),
    "shorter file": lambda tree: os.truncate(tree / "_internal/block", 511),
    "missing file": lambda tree: (tree / "_internal/empty").unlink(),
    "missing directory": lambda tree: shutil.rmtree(tree / "_internal/lib"),
    "missing manifest": lambda tree: (tree / "MANIFEST").unlink(),
    "extra file": lambda tree: (tree / "libc.so.6").write_bytes(b"x"),
    "extra file within": lambda tree: (tree / "_internal/libz.so.1").write_bytes(b"x"),
    "extra empty directory": lambda tree: (tree / "_internal/more").mkdir(mode=0o700),
    "extra manifest": lambda tree: (tree / "_internal/MANIFEST").write_bytes(b""),
    "extra name as terminals obey it": lambda tree: (tree / "\x1b[2J\n").touch(),
    "extra long name": lambda tree: (tree / "_internal/lib" / ("x" * 250)).touch(),
    "file in a directory's place": lambda tree: replace_by(
        tree / "_internal/block", lambda path: path.mkdir(mode=0o700)
    ),
    "symbolic link to the same bytes": lambda tree: replace_by(
        tree / "_internal/empty", lambda path: path.symlink_to("/dev/null")
    ),
    "directory through a link": lambda tree: (
        (tree / "_internal").rename(tree.parent / "x")
        and (tree / "_internal").symlink_to(tree.parent / "x")
    ),
    "second name": lambda tree: os.link(tree / "_internal/block", tree.parent / "x"),
    "pipe": lambda tree: replace_by(tree / "_internal/block", os.mkfifo),
    "writable for others": lambda tree: (tree / "_internal/block").chmod(0o622),
    "executable": lambda tree: (tree / "_internal/block").chmod(0o700),
    "not executable": lambda tree: (tree / "stoilo-verifier").chmod(0o600),
    "setuid": lambda tree: (tree / "stoilo-verifier").chmod(0o4700),
    "directory open to others": lambda tree: (tree / "_internal/lib").chmod(0o777),
    "top open to others": lambda tree: tree.chmod(0o755),
    "tree through a link": lambda tree: (
        tree.rename(tree.parent / "x") and tree.symlink_to(tree.parent / "x")
    ),
    "tree is a file": lambda tree: shutil.rmtree(tree) or tree.write_bytes(b""),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changed_tree_is_not_run(slot, tree, change):
    change(tree)
    assert slot.refusal() == (4, "STO-F006")
    assert slot.refusal() == (4, "STO-F006")  # nor healed behind the volunteer's back


def test_unchanged_tree_runs_again(slot, tree):
    before = {path: path.stat().st_ino for path in tree.rglob("*")}
    assert slot.starts()
    assert {path: path.stat().st_ino for path in tree.rglob("*")} == before


def test_files_are_the_volunteers_alone(tree):
    modes = {path.stat().st_mode & 0o777 for path in tree.rglob("*") if path.is_file()}
    assert modes == {0o600, 0o700}
    assert {path.stat().st_mode & 0o777 for path in tree.rglob("*/")} == {0o700}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
@pytest.mark.parametrize("name", [".", "_internal", "_internal/block", "MANIFEST"])
def test_somebody_elses_file_is_not_run(slot, tree, name):
    os.chown(tree / name, 65534, 65534)
    assert slot.refusal() == (4, "STO-F006")


def test_deleted_tree_is_unpacked_again(slot, tree):
    shutil.rmtree(tree)
    assert slot.starts()


def test_refusal_names_the_directory_to_delete(slot, tree):
    flip(tree / "_internal/block")
    said = slot.run().stderr.decode()
    assert str(tree) in said
    assert "_internal/block has other bytes" in said


def test_other_trees_beside_it_do_not_matter(slot, tree):
    (tree.parent / ("c" * 64)).mkdir()
    (tree.parent / ("c" * 64) / "stoilo-verifier").write_text("#!/bin/sh\n")
    assert slot.starts()


@pytest.mark.parametrize("files", [5, 7])
def test_too_few_descriptors_accuse_nobody(slot, files):
    assert slot.starts()
    most = (files, files)
    limited = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, most)}
    assert slot.refusal(**limited) == (1, "STO-F037")
    assert slot.starts()

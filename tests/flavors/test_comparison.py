from __future__ import annotations

import shutil

import pytest

from stoilo.cli.main import main
from stoilo.core.errors import StoiloError
from stoilo.core.frozen_tree import parse_tree, render_tree
from stoilo.flavors.comparison import compare_trees, load_tree
from stoilo.flavors.packing import XzWriter, describe_tree, write_archive


def make_tree(directory, part="pure"):
    (directory / "sub").mkdir(parents=True)
    (directory / "prog").write_bytes(b"program")
    (directory / "prog").chmod(0o755)
    (directory / "sub" / "data").write_bytes(bytes(100))
    return seal(directory, part)


def seal(directory, part="pure"):
    manifest = render_tree(describe_tree(directory, part, "x86_64-linux"))
    (directory / "MANIFEST").write_bytes(manifest)
    return directory


def pack(directory, target):
    tree = parse_tree((directory / "MANIFEST").read_bytes())
    with target.open("wb") as file:
        stream = XzWriter(file) if target.suffix == ".xz" else file
        write_archive(directory, tree, stream)
        if target.suffix == ".xz":
            stream.close()
    return target


def differences(one, other):
    found = compare_trees(load_tree(one), load_tree(other))
    return {row.path: row.what for row in found}


@pytest.fixture
def tree(tmp_path):
    return make_tree(tmp_path / "one")


@pytest.fixture
def twin(tmp_path, tree):
    shutil.copytree(tree, tmp_path / "two")
    return tmp_path / "two"


@pytest.mark.parametrize("form", ["directory", "a.tar", "a.tar.xz"])
def test_equal_trees_are_equal_in_whatever_form(tree, twin, tmp_path, form):
    other = twin if form == "directory" else pack(twin, tmp_path / form)
    assert differences(tree, other) == {}


def change(path):
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("what", "path", "words"),
    [
        (lambda d: change(d / "sub/data"), "sub/data", "other bytes"),
        (lambda d: (d / "sub/data").write_bytes(b""), "sub/data", "100 and 0 bytes"),
        (lambda d: (d / "more").write_bytes(b"x"), "more", "only in the second"),
        (lambda d: (d / "prog").unlink(), "prog", "only in the first"),
        (lambda d: (d / "prog").chmod(0o644), "prog", "a program in one"),
    ],
)
def test_one_difference_is_named_by_its_path(tree, twin, what, path, words):
    what(twin)
    found = differences(tree, seal(twin))
    assert list(found) == [path]
    assert words in found[path]


def test_other_part_is_a_difference(tree, twin):
    assert "numeric" in differences(tree, seal(twin, "numeric"))["MANIFEST"]


def test_directory_that_left_its_manifest_is_refused(twin):
    change(twin / "sub/data")
    with pytest.raises(StoiloError, match="sub/data") as caught:
        load_tree(twin)
    assert caught.value.code == "STO-F006"


@pytest.mark.parametrize("name", ["nothing", "file", "folder"])
def test_what_is_no_tree_has_its_code(tmp_path, name):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"x" * 2000)
    with pytest.raises(StoiloError) as caught:
        load_tree(tmp_path / name)
    assert caught.value.code in {"STO-F014", "STO-F006"}


def test_compare_exits_4_and_names_the_path(tree, twin, capsys):
    assert main(["flavor", "compare", str(tree), str(twin)]) == 0
    change(twin / "sub/data")
    seal(twin)
    assert main(["flavor", "compare", str(tree), str(twin)]) == 4
    out, err = capsys.readouterr()
    assert "sub/data: other bytes" in out
    assert "STO-F006" in err
    assert main(["flavor", "compare", str(tree), str(tree)]) == 2


def test_verify_compares_with_a_releases_digest(tree, tmp_path, capsys):
    archive = pack(tree, tmp_path / "a.tar.xz")
    digest = load_tree(archive).digest
    assert main(["flavor", "compare", str(archive), "--tree", digest]) == 0
    listed = str(tree / "MANIFEST")
    assert main(["flavor", "compare", str(archive), "--tree", listed, "--json"]) == 0
    assert '"verified": true' in capsys.readouterr().out
    assert main(["flavor", "compare", str(archive), "--tree", "0" * 64]) == 4
    assert main(["flavor", "compare", str(archive), "--archive", "0" * 64]) == 4
    change(archive)
    assert main(["flavor", "compare", str(archive)]) == 4

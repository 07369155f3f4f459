from __future__ import annotations

import hashlib
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.digests import Digest
from stoilo.core.errors import TrustError, UsageError
from stoilo.core.frozen_tree import (
    Tree,
    TreeFile,
    parse_tree,
    platform_name,
    render_tree,
    tree_digest,
    ustar_split,
)
from stoilo.flavors.packing import describe_tree

ZERO = Digest("0" * 64)
GOOD = b"stoilo-tree/1 pure x86_64-linux\n" + b"0" * 64 + b" 5 x bin/a\n"


def one(path, size=5):
    return TreeFile(ZERO, size, executable=True, path=path)


def tree_of(*paths):
    return Tree("pure", "x86_64-linux", tuple(one(path) for path in paths))


def refusal(data):
    with pytest.raises(TrustError) as caught:
        parse_tree(data)
    return caught.value


def test_rendered_tree_is_the_documented_text_and_parses_back():
    assert render_tree(tree_of("bin/a")) == GOOD
    assert parse_tree(GOOD) == tree_of("bin/a")
    assert tree_digest(GOOD) == hashlib.sha256(GOOD).hexdigest()


@pytest.mark.parametrize(
    "paths",
    [
        ("b", "a"),
        ("a", "a"),
        ("A", "a"),
        ("a", "a/b"),
        ("A/b", "a"),
        ("MANIFEST",),
        ("manifest",),
        ("../a",),
        ("a/../b",),
        ("a//b",),
        ("/a",),
        ("a/",),
        ("./a",),
        ("-a",),
        ("a/-b",),
        ("a\\b",),
        ("a:b",),
        ("ä",),
        ("a" * 129,),
        ("a" * 101,),
        ("/".join("abcdefgh" * 31),),
        (),
    ],
)
def test_paths_that_two_readers_could_take_differently_are_refused(paths):
    with pytest.raises(TrustError) as caught:
        render_tree(tree_of(*paths))
    assert caught.value.code == "STO-F006"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        GOOD[:-1],
        GOOD + b"\n",
        GOOD.replace(b"/1", b"/2"),
        GOOD.replace(b"pure", b"Pure"),
        GOOD.replace(b"x86_64-linux", b"x86_64-windows"),
        GOOD.replace(b" 5 ", b" 05 "),
        GOOD.replace(b" 5 ", b" -5 "),
        GOOD.replace(b" 5 ", b" 5000000000 "),
        GOOD.replace(b" 5 ", b"  5 "),
        GOOD.replace(b" x ", b" w "),
        GOOD.replace(b"\n", b"\r\n"),
        GOOD.replace(b"bin/a", b"bin/a b"),
        GOOD.replace(b"bin/a", b"bin/\xff"),
        GOOD[:32] + b"A" * 64 + GOOD[96:],
        b"x" * ((16 << 20) + 1),
    ],
)
def test_manifest_in_another_form_is_refused_with_its_code(data):
    assert refusal(data).code == "STO-F006"


@given(st.binary(max_size=400))
def test_any_bytes_end_in_a_tree_or_our_error(data):
    try:
        tree = parse_tree(data)
    except TrustError as error:
        assert error.code == "STO-F006"
    else:
        assert render_tree(tree) == data


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255))
def test_a_changed_byte_is_refused_or_gives_another_tree(place, value):
    data = GOOD[:place] + bytes([value]) + GOOD[place + 1 :]
    try:
        assert render_tree(parse_tree(data)) == data
    except TrustError as error:
        assert error.code == "STO-F006"


def test_long_path_is_split_at_the_first_slash_that_fits():
    path = "/".join(["a" * 60, "b" * 60, "c" * 39])
    assert ustar_split(path) == ("a" * 60, "b" * 60 + "/" + "c" * 39)
    assert ustar_split("short/name") == ("", "short/name")


def test_directory_is_described_by_digest_size_and_mode(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b").write_bytes(b"two")
    (tmp_path / "a").write_bytes(b"one")
    (tmp_path / "a").chmod(0o755)
    (tmp_path / "MANIFEST").write_bytes(b"left out")
    files = describe_tree(tmp_path, "pure", "x86_64-linux").files
    assert [(f.path, f.size, f.executable) for f in files] == [
        ("a", 3, True),
        ("sub/b", 3, False),
    ]
    assert files[0].digest == hashlib.sha256(b"one").hexdigest()


@pytest.mark.parametrize("kind", ["link", "folder link", "pipe", "empty", "gone"])
def test_what_is_no_regular_file_is_refused(tmp_path, kind):
    (tmp_path / "a").write_bytes(b"one")
    make = {
        "link": lambda path: path.symlink_to("a"),
        "folder link": lambda path: path.symlink_to("."),
        "pipe": os.mkfifo,
        "empty": lambda path: path.mkdir(),
        "gone": lambda _: None,
    }[kind]
    make(tmp_path / "odd")
    directory = tmp_path / "nowhere" if kind == "gone" else tmp_path
    with pytest.raises(TrustError) as caught:
        describe_tree(directory, "pure", "x86_64-linux")
    assert caught.value.code == "STO-F006"


def test_platform_is_named_or_refused():
    assert platform_name("x86_64") == "x86_64-linux"
    assert platform_name("aarch64") == "aarch64-linux"
    with pytest.raises(UsageError) as caught:
        platform_name("riscv64")
    assert caught.value.code == "STO-F014"

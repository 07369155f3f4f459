"""Libraries are data: parsed strictly, added to a level, never more than a level's list."""

import msgspec
import pytest

from stoilo.core.errors import InternalError
from stoilo.core.levels import level_files, load_levels, parse_level
from stoilo.core.libraries import (
    MOST_LIBRARIES,
    add_libraries,
    library_digests,
    library_names,
    load_libraries,
    load_library,
    parse_library,
)

PURE, NUMERIC, TENSOR = load_levels()
TEXT = """
name = "sums"
distribution = "sums"
versions = ">=1,<2"
level = "numeric"
summary = "Adds."
preload = ["sums"]
[modules.sums]
names = ["add"]
[withheld]
"sums.save" = "writes files"
"""


def parse(text=TEXT):
    return parse_library(text.encode())


def test_added_library_gives_its_modules_and_keeps_the_level():
    level = add_libraries(NUMERIC, [parse()])
    assert level.modules["sums"].names == ("add",)
    assert level.preload[-1] == "sums"
    assert (level.name, level.digest) == (NUMERIC.name, NUMERIC.digest)
    assert level.libraries == (parse().digest,)


def test_added_library_leaves_the_wall_as_it_is():
    level = add_libraries(NUMERIC, [parse()])
    for part in ("syscalls", "limits", "builtins", "order"):
        assert getattr(level, part) == getattr(NUMERIC, part)


def test_order_of_libraries_does_not_matter():
    first, second = parse(), parse(TEXT.replace("sums", "means"))
    assert add_libraries(TENSOR, [first, second]) == add_libraries(
        TENSOR, [second, first]
    )


def test_library_of_a_wider_level_is_refused():
    with pytest.raises(InternalError, match="needs level numeric"):
        add_libraries(PURE, [parse()])


def test_more_libraries_than_a_flavor_may_have_are_refused():
    with pytest.raises(InternalError, match="STO-P001"):
        add_libraries(NUMERIC, [parse()] * (MOST_LIBRARIES + 1))


@pytest.mark.parametrize(
    "change",
    [
        ('name = "sums"', 'name = "../sums"'),
        ('name = "sums"', 'name = "os"'),
        ('level = "numeric"', 'level = "root"'),
        ("[modules.sums]", "[modules.os]"),
        ("[modules.sums]", "[syscalls]\nallow = ['open']\n[modules.sums]"),
        ("[withheld]", "[limits.max]\ncpu_s = 1\n[withheld]"),
        ('summary = "Adds."', ""),
        ("preload", "\x00"),
    ],
)
def test_file_that_is_broken_or_asks_for_more_is_refused(change):
    with pytest.raises(InternalError, match="STO-P001"):
        parse(TEXT.replace(*change))


def test_digest_is_of_the_bytes():
    assert parse().digest != parse(TEXT + "\n").digest


@pytest.mark.parametrize("name", ["", "nothing", "../levels/pure", "a/b", "é", "\x00"])
def test_unknown_and_hostile_names_are_no_library(name):
    assert load_library(name) is None


def test_shipped_files_are_named_after_what_is_imported():
    assert [one.name for one in load_libraries()] == list(library_names())
    assert tuple(one.digest for one in load_libraries()) == library_digests()


def test_level_files_cannot_name_libraries():
    data = level_files()["pure"].replace(b"order", b'libraries = ["x"]\norder', 1)
    assert parse_level(data).libraries == ()


def test_a_level_with_libraries_crosses_the_wire_to_the_zygote():
    level = add_libraries(NUMERIC, [parse()])
    data = msgspec.msgpack.encode(level)
    assert msgspec.msgpack.decode(data, type=type(level)) == level


def test_what_two_libraries_need_of_each_other_is_loaded_with_both_alone():
    text = TEXT.replace(
        "[modules.sums]", '[together]\nmeans = ["both"]\n[modules.sums]'
    )
    first, second = parse(text), parse(TEXT.replace("sums", "means"))
    assert "both" in add_libraries(NUMERIC, [first, second]).preload
    assert "both" not in add_libraries(NUMERIC, [first]).preload

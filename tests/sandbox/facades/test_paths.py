import pathlib
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.sandbox.facades.paths import PurePosixPath

TEXT = st.text("ab./ é*", max_size=8)
PROPERTIES = ("parts", "root", "anchor", "drive", "name", "stem", "suffix", "suffixes")
METHODS = ("as_posix", "is_absolute", "__str__", "__repr__")
ASKED = ("match", "with_name", "with_stem", "with_suffix", "relative_to", "joinpath")
ASKED += ("is_relative_to", "__truediv__", "__rtruediv__")


def answer(call):
    try:
        return str(pathlib.PurePosixPath(str(call())))  # 3.11 leaves "a/." as it is
    except (ValueError, TypeError) as error:
        return type(error)


@given(st.lists(TEXT, max_size=3), TEXT)
def test_every_answer_is_the_librarys(parts, other):
    ours, theirs = PurePosixPath(*parts), pathlib.PurePosixPath(*parts)
    for name in PROPERTIES:
        assert getattr(ours, name) == getattr(theirs, name)
    for name in METHODS:
        assert getattr(ours, name)() == getattr(theirs, name)()
    for name in ASKED:
        asked = [partial(getattr(path, name), other) for path in (ours, theirs)]
        assert answer(asked[0]) == answer(asked[1]), name
    assert list(map(str, ours.parents)) == list(map(str, theirs.parents))
    assert str(ours.parent) == str(theirs.parent)


def test_paths_compare_and_hash_by_their_parts():
    one, same, other = PurePosixPath("a/b"), PurePosixPath("a", "b"), PurePosixPath("c")
    assert (one == same, one == "a/b", {one: 1}[same]) == (True, False, 1)
    assert sorted([other, one]) == [one, other]
    assert one <= same
    with pytest.raises(TypeError):
        one < "c"  # noqa: B015 - the comparison is what is asked


class Text(str):
    """Text that could answer for itself."""

    __slots__ = ()


@pytest.mark.parametrize("part", [Text("a"), b"a", pathlib.PurePath("a"), 3, None])
def test_part_that_is_no_plain_text_is_refused(part):
    with pytest.raises(TypeError):
        PurePosixPath(part)


def test_class_touches_no_file():
    assert not {"open", "exists", "read_text", "__fspath__", "touch"} & set(
        dir(PurePosixPath)
    )
    assert {"open", "exists"} <= set(dir(pathlib.PosixPath))  # the control

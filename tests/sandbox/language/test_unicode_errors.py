"""A Unicode error's places are inside its text, and stay there."""

import copy
import subprocess
import sys

import pytest

from stoilo.sandbox.language.hardening import seal_unicode_errors
from stoilo.sandbox.language.rules import GuardError

MAKE = {
    UnicodeDecodeError: lambda start: UnicodeDecodeError(
        "utf-8", b"abc", start, start + 1, "why"
    ),
    UnicodeEncodeError: lambda start: UnicodeEncodeError(
        "utf-8", "abc", start, start + 1, "why"
    ),
    UnicodeTranslateError: lambda start: UnicodeTranslateError(
        "abc", start, start + 1, "why"
    ),
}


@pytest.fixture(autouse=True)
def sealed():
    seal_unicode_errors()
    seal_unicode_errors()  # as often as one likes


@pytest.mark.parametrize("cls", MAKE, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("field", ["start", "end", "object"])
def test_field_is_read_and_neither_set_nor_deleted(cls, field):
    error = MAKE[cls](1)
    before = getattr(error, field)
    for change in (
        lambda: setattr(error, field, before),
        lambda: delattr(error, field),
    ):
        with pytest.raises(GuardError) as caught:
            change()
        assert caught.value.code == "STO-G102"
    assert getattr(error, field) == before


@pytest.mark.parametrize("cls", MAKE, ids=lambda cls: cls.__name__)
def test_place_before_the_text_is_refused(cls):
    with pytest.raises(GuardError) as caught:
        MAKE[cls](-1)
    assert caught.value.code == "STO-G108"


def test_error_is_made_once():
    error = MAKE[UnicodeDecodeError](1)
    with pytest.raises(GuardError):
        error.__init__("utf-8", b"abc", 1, 2, "why")


def test_errors_of_codecs_and_copies_are_what_they_were():
    with pytest.raises(UnicodeDecodeError) as caught:
        b"ab\xff".decode()
    error = caught.value
    assert (error.start, error.end, error.object) == (2, 3, b"ab\xff")
    assert str(error) == str(copy.copy(error))
    assert b"ab\xff".decode(errors="backslashreplace") == "ab\\xff"
    with pytest.raises(UnicodeEncodeError, match="position 1"):
        "a\udc80".encode()


def test_subclass_keeps_attributes_of_its_own():
    class Own(UnicodeEncodeError):
        def __init__(self, start):
            super().__init__("utf-8", "abc", start, start + 1, "why")
            self.line = 7

    own = Own(1)
    assert (own.line, own.start, isinstance(own, UnicodeError)) == (7, 1, True)


def test_control_an_error_as_cpython_makes_it_reads_below_its_text():
    program = "print(UnicodeDecodeError('utf-8', b'abc', -1, 0, 'why'))"
    ran = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert "decode byte 0x" in ran.stdout

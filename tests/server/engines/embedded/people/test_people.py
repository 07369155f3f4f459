from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import UsageError
from stoilo.server.engines.embedded.people.passwords import (
    check_password,
    hash_password,
    password_digest,
)
from stoilo.server.engines.embedded.people.people import (
    NAME_CHARS,
    check_name,
    shown_name,
)

EMAIL = "ada@example.org"


@given(st.text(max_size=200))
def test_any_name_ends_in_a_plain_one_or_our_error(name):
    try:
        kept = check_name(name)
    except UsageError as error:
        assert error.code == "STO-E064"
        return
    assert len(kept) <= NAME_CHARS
    assert kept.isprintable()
    assert not set(kept) & set("<>&@\"'")
    assert check_name(kept) == kept


@pytest.mark.parametrize("name", ["ada@x.org", "<b>", "a\u200bb", "x" * 61, 'a"b'])
def test_address_markup_and_invisible_characters_are_no_name(name):
    with pytest.raises(UsageError, match="STO-E064"):
        check_name(name)


def test_volunteer_without_a_name_is_a_number():
    assert shown_name(7, "") == "volunteer 7"


@pytest.mark.parametrize("password", ["", "password", "123456", EMAIL, "ada"])
def test_password_that_everybody_tries_is_refused(password):
    with pytest.raises(UsageError, match="STO-E063"):
        check_password(password_digest(password, EMAIL), EMAIL)


@pytest.mark.parametrize("digest", ["", "x" * 32, "A" * 32, "a" * 31, "a" * 33])
def test_digest_that_is_none_is_refused(digest):
    with pytest.raises(UsageError, match="STO-E063"):
        check_password(digest, EMAIL)


def test_other_passwords_are_kept_salted():
    digest = password_digest("correct horse battery", EMAIL)
    check_password(digest, EMAIL)
    assert hash_password(digest, "a") != hash_password(digest, "b")

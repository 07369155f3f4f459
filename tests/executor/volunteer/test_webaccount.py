from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import DeniedError, StoiloError, TrustError
from stoilo.executor.volunteer.attachments import parse_account, render_lookup
from stoilo.server.engines.embedded.web.replies import (
    render_account,
    render_account_error,
)


def test_password_travels_as_boincs_hash_only():
    asked = render_lookup("Ann@Example.org", "secret")
    assert "secret" not in asked
    assert asked.startswith("lookup_account.php?email_addr=Ann%40Example.org&")
    same = render_lookup("ann@example.org", "secret")
    assert asked.rpartition("=")[2] == same.rpartition("=")[2]


def test_answer_of_our_project_is_read():
    assert parse_account(render_account("a" * 32)) == "a" * 32
    with pytest.raises(DeniedError, match=r"bad password.*STO-E016"):
        parse_account(render_account_error(-206, "bad password"))


@pytest.mark.parametrize("key", ["", "short", "a b" * 20, "x" * 300])
def test_answer_without_a_usable_key_is_refused(key):
    with pytest.raises(TrustError, match="STO-X030"):
        parse_account(render_account(key))


@given(st.binary(max_size=300))
def test_any_answer_ends_in_our_error_or_a_key(data):
    try:
        assert parse_account(data)
    except StoiloError as error:
        assert error.code in {"STO-X030", "STO-E016"}

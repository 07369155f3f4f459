"""BOINC's public keys and signatures, against keys that the signer makes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.boinc.codesign import (
    check_boinc_signature,
    check_key_change,
    md5_hex,
    parse_boinc_public,
    parse_boinc_signature,
    render_boinc_public,
)
from stoilo.core.errors import TrustError
from stoilo.signer.boinc_keys import generate_boinc_key, sign_key_change, sign_md5

OLD, NEW = generate_boinc_key(), generate_boinc_key()


def test_signature_holds_for_its_file_and_key_only():
    text = sign_md5(md5_hex(b"launcher"), OLD)
    check_boinc_signature(md5_hex(b"launcher"), text, OLD.public)
    for data, key in ((b"Launcher", OLD), (b"launcher", NEW)):
        with pytest.raises(TrustError, match="STO-K076"):
            check_boinc_signature(md5_hex(data), text, key.public)


def test_key_change_is_the_former_keys_word():
    text = sign_key_change(NEW.public, OLD)
    check_key_change(NEW.public, text, OLD.public)
    with pytest.raises(TrustError, match="STO-K076"):
        check_key_change(OLD.public, text, NEW.public)


def test_public_key_reads_back():
    assert parse_boinc_public(render_boinc_public(NEW.public)) == NEW.public


@given(st.text(max_size=300) | st.binary(max_size=300).map(bytes.hex))
def test_any_text_ends_in_our_error_or_a_value(text):
    for parse in (parse_boinc_public, parse_boinc_signature):
        try:
            parse(text)
        except TrustError as error:
            assert error.code == "STO-K076"

"""Digests: plain for content, domain-separated for the rest."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.digests import Domain, check_digest, content_digest, domain_digest
from stoilo.core.errors import TrustError


def test_content_digest_is_what_sha256sum_prints():
    assert content_digest(b"abc") == hashlib.sha256(b"abc").hexdigest()


@given(
    st.lists(st.binary(max_size=8), max_size=4),
    st.lists(st.binary(max_size=8), max_size=4),
)
def test_parts_cannot_be_shifted_into_each_other(left, right):
    same = domain_digest(Domain.SEED, *left) == domain_digest(Domain.SEED, *right)
    assert same == (left == right)


def test_domains_never_share_a_digest():
    digests = {domain_digest(domain, b"x") for domain in Domain}
    assert len(digests) == len(Domain)


@pytest.mark.parametrize(
    "text", ["", "0" * 63, "G" * 64, "A" * 64, "0" * 65, "0" * 64 + "\n"]
)
def test_malformed_digest_is_refused(text):
    with pytest.raises(TrustError, match="STO-D002"):
        check_digest(text)

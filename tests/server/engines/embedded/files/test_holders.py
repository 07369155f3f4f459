"""The order in which a host looks for a file: by rate, by lot, by its own draw."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.server.engines.embedded.files.holders import P_MAX, network_of, order_urls

URLS = [f"https://{name}.example/" for name in ("a", "b", "c", "d")]
RATES = st.dictionaries(st.sampled_from(URLS), st.floats(1.0, 1e9))
HOSTS, DIGESTS = st.integers(0, 2**40), st.text("0123456789abcdef", min_size=1)
HOLDERS = st.sets(st.sampled_from(URLS))


def firsts(rates, count=2000):
    """Return how often each URL comes first, over as many files."""
    found = [order_urls(URLS, rates, 7, f"{n:x}")[0] for n in range(count)]
    return {url: found.count(url) / count for url in URLS}


@given(HOLDERS, RATES, HOSTS, DIGESTS)
def test_order_has_each_holder_once_and_nobody_else(urls, rates, host, digest):
    ordered = order_urls(urls, rates, host, digest)
    assert sorted(ordered) == sorted(urls)
    assert ordered == order_urls(sorted(urls), rates, host, digest)


@given(HOLDERS, RATES, HOSTS, DIGESTS)
def test_but_for_the_first_the_known_come_by_rate_before_the_unknown(
    urls, rates, host, digest
):
    rest = order_urls(urls, rates, host, digest)[1:]
    speeds = [rates.get(url, 0.0) for url in rest]
    assert speeds == sorted(speeds, reverse=True)


@given(HOSTS, DIGESTS)
def test_without_rates_each_host_has_one_order_for_all_files(host, digest):
    assert order_urls(URLS, {}, host, digest) == order_urls(URLS, {}, host, "0")


def test_fastest_comes_first_as_often_as_the_algorithm_says():
    known = dict(zip(URLS, (4.0, 3.0, 2.0, 1.0), strict=True))
    assert firsts(known)[URLS[0]] == pytest.approx(P_MAX + 0.1 / 4, abs=0.03)
    half = {url: known[url] for url in URLS[:2]}
    shares = firsts(half)
    assert shares[URLS[0]] == pytest.approx(0.5, abs=0.04)
    assert shares[URLS[1]] == 0
    assert shares[URLS[2]] + shares[URLS[3]] == pytest.approx(0.5, abs=0.04)


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("203.0.113.77", "203.0.113.0/24"),
        ("::ffff:203.0.113.77", "203.0.113.0/24"),
        ("2001:db8:1:2::3", "2001:db8:1::/48"),
        ("fe80::1%eth0", "fe80::/48"),
        ("", ""),
        ("testclient", ""),
    ],
)
def test_network_of_a_client_is_wider_than_its_address(address, network):
    assert network_of(address) == network


@given(st.text(max_size=60))
def test_any_text_has_a_network_or_none(text):
    assert isinstance(network_of(text), str)

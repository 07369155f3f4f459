"""Which mirror a host is sent to: stable, weighted, near first, the project last."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import UsageError
from stoilo.server.engines.mirrors import (
    Mirror,
    distance,
    parse_mirrors,
    rank,
)

HOUR = 3600
A, B, C = (Mirror(f"https://{name}.example/") for name in "abc")
DIGEST = "d" * 64


def first(mirrors, hosts=3000):
    return Counter(rank(mirrors, host)[0].url for host in range(hosts))


def test_setting_is_read():
    text = "https://a.example/x/ weight=2 utc=-3.5, http://10.0.0.1:8000/"
    assert parse_mirrors(text) == (
        Mirror("https://a.example/x/", 2, -12600),
        Mirror("http://10.0.0.1:8000/"),
    )
    assert parse_mirrors("") == ()


@pytest.mark.parametrize(
    "text",
    [
        "ftp://a.example/",
        "https://a.example",
        "https://user@a.example/",
        "https://a.example/?q=/",
        "https://a.example/ weight=0",
        "https://a.example/ weight=x",
        "https://a.example/ utc=15",
        "https://a.example/ far",
        "https://a.example/, https://a.example/",
        ", ".join(f"https://m{number}.example/" for number in range(65)),
    ],
)
def test_setting_without_sense_is_refused(text):
    with pytest.raises(UsageError) as refusal:
        parse_mirrors(text)
    assert refusal.value.code == "STO-B050"


@given(st.text(max_size=40))
def test_any_setting_ends_in_mirrors_or_our_error(text):
    try:
        mirrors = parse_mirrors(text)
    except UsageError:
        return
    assert all(mirror.url.endswith("/") for mirror in mirrors)


def test_host_is_sent_to_the_same_mirror_every_time():
    assert rank([A, B, C], 7) == rank([C, B, A], 7)


def test_weight_is_the_share_of_hosts():
    heavy = Mirror(A.url, weight=3)
    hosts = 3000
    share = first([heavy, B], hosts)[heavy.url] / hosts
    assert abs(share - 3 / 4) < 4 * math.sqrt(3 / 16 / hosts)


def test_mirror_that_goes_moves_only_its_own_hosts():
    for host in range(300):
        with_all = rank([A, B, C], host)
        without = rank([A, B], host)
        assert [one for one in with_all if one is not C] == list(without)


def test_near_mirror_comes_first_whatever_its_weight():
    near = Mirror(A.url, 1, 2 * HOUR)
    far = Mirror(B.url, 1000, -8 * HOUR)
    assert {rank([far, near], host, HOUR)[0] for host in range(50)} == {near}


def test_time_zones_meet_behind_the_date_line():
    assert distance(Mirror(A.url, 1, 12 * HOUR), -11 * HOUR) == 0


def test_unknown_place_is_between_near_and_far():
    assert (distance(A, 0), distance(Mirror(A.url, 1, 0), None)) == (1, 1)
    assert distance(Mirror(A.url, 1, 8 * HOUR), 0) == 2

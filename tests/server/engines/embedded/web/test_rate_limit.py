from __future__ import annotations

import pytest

from stoilo.core.rate_limit import TokenBuckets
from stoilo.server.engines.embedded.web.rate_limit import CallLimits, CallRates

LIMITS = CallLimits(
    account_calls=2,
    new_accounts=3,
    scheduler_calls_of_address=4,
    scheduler_calls_of_account=2,
    unknown_keys_of_address=3,
    unknown_keys=5,
)


@pytest.fixture
def now():
    return [0.0]


@pytest.fixture
def rates(now):
    return CallRates(LIMITS, lambda: now[0])


def test_bucket_refills_with_time(now):
    limit = TokenBuckets(60, clock=lambda: now[0])
    assert [limit.allow("a") for _ in range(61)] == [True] * 60 + [False]
    now[0] = 2.0
    assert [limit.allow("a") for _ in range(3)] == [True, True, False]


def test_account_calls_are_counted_for_each_address(rates):
    assert [rates.allow_account_call("192.0.2.1") for _ in range(3)] == [
        True,
        True,
        False,
    ]
    assert rates.allow_account_call("192.0.2.2")


def test_one_ipv6_line_is_one_caller(rates):
    calls = [rates.allow_account_call(f"2001:db8::{n:x}") for n in range(3)]
    assert calls == [True, True, False]
    assert rates.allow_account_call("2001:db8:0:1::1")


def test_new_accounts_are_counted_together(rates):
    assert [rates.allow_new_account() for _ in range(4)] == [True] * 3 + [False]


def test_scheduler_calls_are_counted_for_each_account(rates):
    calls = [rates.allow_key(f"192.0.2.{n}", "key", known=True) for n in range(3)]
    assert calls == [True, True, False]
    assert rates.allow_key("192.0.2.9", "other", known=True)


def test_scheduler_calls_are_counted_for_each_address(rates):
    calls = [rates.allow_address("192.0.2.1") for _ in range(5)]
    assert calls == [True] * 4 + [False]
    assert rates.allow_address("192.0.2.2")


def test_this_machine_is_limited_by_account_alone(rates):
    assert all(rates.allow_address("127.0.0.1") for _ in range(9))
    calls = [rates.allow_key("::1", "key0", known=True) for _ in range(3)]
    assert calls == [True, True, False]


def test_unknown_keys_share_one_bucket_and_take_no_accounts_place(rates):
    def guess(address, number):
        return rates.allow_key(address, f"key{number}", known=False)

    assert [guess("192.0.2.1", n) for n in range(4)] == [True] * 3 + [False]
    others = [guess(f"198.51.100.{n}", n) for n in range(3)]
    assert others == [True, True, False]
    assert not rates._accounts._buckets
    assert rates.allow_key("192.0.2.7", "an account's", known=True)


def test_table_is_bounded(now):
    limit = TokenBuckets(1, names=2, clock=lambda: now[0])
    for name in ("a", "b", "c"):
        limit.allow(name)
    assert len(limit._buckets) == 2


@pytest.mark.parametrize("address", ["", "no address", "x" * 9999])
def test_strange_address_is_a_caller_too(rates, address):
    assert rates.allow_account_call(address)

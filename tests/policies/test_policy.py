import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import DeniedError, UsageError
from stoilo.policies.policy import (
    EVERYBODY,
    Quota,
    check_access,
    default_policy,
    parse_policy,
)

HEAD = b'format = 1\nname = "test"\n'


def test_shipped_policy_opens_pure_and_numeric_to_researchers() -> None:
    policy = default_policy()
    assert policy.is_open("pure")
    assert policy.is_open("numeric")
    assert not policy.is_open("gpu")
    check_access(policy, "pure", "ada", ("researcher",))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff",
        b"format = 2\nname = 'x'",
        HEAD + b"unknown = 1",
        HEAD + b"digest = 'x'",
        HEAD + b"[deny]\ndigests = ['abc']",
        HEAD + b"[levels.pure]\nreview = 'maybe'",
        HEAD + b"[levels.pure]\nallow = ['os']",
    ],
)
def test_broken_policy_is_refused(text: bytes) -> None:
    with pytest.raises(UsageError, match="STO-P003"):
        parse_policy(text)


@given(st.binary(max_size=100))
def test_any_policy_bytes_end_in_a_policy_or_our_error(data: bytes) -> None:
    try:
        parse_policy(HEAD + data)
    except UsageError as error:
        assert error.code == "STO-P003"


def test_digest_is_of_the_bytes() -> None:
    one, other = parse_policy(HEAD), parse_policy(HEAD + b"# comment")
    assert one.digest != other.digest
    assert one.digest == parse_policy(one.text).digest


def test_unlisted_and_empty_levels_are_closed() -> None:
    policy = parse_policy(HEAD + b"[levels.pure]\nopen_to = []")
    assert not policy.is_open("pure")
    assert not policy.is_open("numeric")


@pytest.mark.parametrize("rule", [EVERYBODY, "user:ada", "student"])
def test_level_is_open_to_whom_the_policy_names(rule: str) -> None:
    policy = parse_policy(HEAD + f"[levels.pure]\nopen_to = ['{rule}']".encode())
    check_access(policy, "pure", "ada", ("student",))


@pytest.mark.parametrize("rule", ["user:bob", "teacher", "ada", "user:"])
def test_level_is_closed_to_others(rule: str) -> None:
    policy = parse_policy(HEAD + f"[levels.pure]\nopen_to = ['{rule}']".encode())
    with pytest.raises(DeniedError, match="STO-P050"):
        check_access(policy, "pure", "ada", ("student",))


def test_user_named_like_a_role_gains_nothing() -> None:
    policy = parse_policy(HEAD + b"[levels.pure]\nopen_to = ['researcher']")
    with pytest.raises(DeniedError):
        check_access(policy, "pure", "researcher", ())


def test_review_and_quota_are_read() -> None:
    text = b"[levels.pure]\nreview = 'manual'\n[quotas.student]\nrunning_tasks = 2"
    policy = parse_policy(HEAD + text)
    assert policy.needs_review("pure")
    assert not policy.needs_review("numeric")
    assert policy.quota("student").running_tasks == 2
    assert policy.quota("nobody") == Quota()

"""Rows for BOINC's tables, and who may not be overwritten there."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from stoilo.core.boinc.xml import XmlBounds, parse_xml
from stoilo.core.errors import UsageError
from stoilo.server.operations.moving import (
    BLACKLISTED,
    host_values,
    missing_rows,
    user_values,
)

ADA = SimpleNamespace(
    id=3,
    email="ada@example.org",
    name="",
    max_level="numeric",
    created_at=5,
    total_credit=7.5,
)


def ada() -> dict[str, object]:
    return user_values(ADA, "k" * 32, (1, 2))


def host(*, banned: bool = False) -> SimpleNamespace:
    """A row of a host that has told nothing of itself."""
    texts = dict.fromkeys(
        ("domain_name", "vendor", "model", "os_name", "os_version"), ""
    )
    numbers = ("fpops", "memory_bytes", "disk_free_bytes", "total_credit")
    known = {"id": 9, "user_id": 3, "cpid": "c", "rpc_seqno": 17, "ncpus": 1}
    known |= {"created_at": 1, "seen_at": 2, "ban": 0 if banned else None}
    return SimpleNamespace(**texts, **dict.fromkeys(numbers, 0.0), **known)


def test_number_key_and_credit_stay() -> None:
    values = ada()
    assert (values["id"], values["authenticator"]) == (3, "k" * 32)
    assert values["total_credit"] == 7.5
    assert host_values(host())["rpc_seqno"] == 17


def test_choice_of_apps_is_never_empty_for_boinc() -> None:
    text = bytes(ada()["project_prefs"])
    found = parse_xml(text, XmlBounds(4096, depth=4, elements=20))
    assert text.count(b"<app_id>") == 2
    assert found is not None
    assert b"<max_level>numeric</max_level>" in text
    assert b"<stoilo_work>numeric</stoilo_work>" in text


def test_nobody_knows_the_password_that_stands_there() -> None:
    assert ada()["passwd_hash"] != ada()["passwd_hash"]


def test_banned_host_stays_banned() -> None:
    assert host_values(host(banned=True))["max_results_day"] == BLACKLISTED
    assert host_values(host())["max_results_day"] != BLACKLISTED


WANTED = [{"id": 1, "email_addr": "a"}, {"id": 2, "email_addr": "b"}]


@pytest.mark.parametrize(
    ("present", "missing"),
    [({}, [1, 2]), ({1: "a"}, [2]), ({1: "a", 2: "b", 7: "z"}, [])],
)
def test_what_is_there_is_left_alone(
    present: dict[int, str], missing: list[int]
) -> None:
    found = missing_rows(WANTED, present, set(present.values()), "email_addr")
    assert [row["id"] for row in found] == missing


@pytest.mark.parametrize("present", [{1: "z"}, {5: "a"}])
def test_number_or_address_of_somebody_else_is_refused(present: dict[int, str]) -> None:
    with pytest.raises(UsageError, match="STO-B073"):
        missing_rows(WANTED, present, set(present.values()), "email_addr")

from __future__ import annotations

import pytest
from sqlalchemy import select

from stoilo.core.errors import DeniedError
from stoilo.server.admission import tokens
from stoilo.server.admission.tokens import (
    Role,
    check_permission,
    find_owner,
    issue_token,
)
from stoilo.server.db import schema
from tests.support.serverbench import Bench


def test_token_is_stored_only_as_a_digest(bench: Bench) -> None:
    with bench.store.read() as connection:
        stored = connection.execute(select(schema.token)).first()
    assert stored is not None
    assert bench.token not in map(str, stored)
    assert stored.digest == tokens.token_digest(bench.token)


@pytest.mark.parametrize("token", ["", "sto_x", "x" * 5000, "ü" * 40])
def test_bad_token_is_denied_alike(bench: Bench, token: str) -> None:
    with (
        bench.store.read() as connection,
        pytest.raises(DeniedError, match="STO-R001"),
    ):
        find_owner(connection, token, bench.clock())


def test_expired_token_is_denied(bench: Bench) -> None:
    with (
        bench.store.read() as connection,
        pytest.raises(DeniedError, match="STO-R001"),
    ):
        find_owner(connection, bench.token, bench.clock() + tokens.YEAR_S)


def test_revoked_token_is_denied_at_once(bench: Bench) -> None:
    with bench.store.write() as connection:
        tokens.revoke_token(connection, bench.token, bench.clock())
        with pytest.raises(DeniedError, match="STO-R001"):
            find_owner(connection, bench.token, bench.clock())


@pytest.mark.parametrize("role", [Role.VOLUNTEER, Role.AUDITOR, Role.REVIEWER])
def test_role_without_tasks_may_not_submit(bench: Bench, role: Role) -> None:
    with bench.store.write() as connection:
        token = issue_token(connection, "eve", role, bench.clock())
        owner = find_owner(connection, token, bench.clock())
    with pytest.raises(DeniedError, match="STO-R002"):
        check_permission(owner, "CreateTask")


def test_scope_limits_the_calls(bench: Bench) -> None:
    with bench.store.write() as connection:
        token = issue_token(
            connection, "ci", Role.RESEARCHER, bench.clock(), scope="PollTask"
        )
        owner = find_owner(connection, token, bench.clock())
    check_permission(owner, "PollTask")
    with pytest.raises(DeniedError, match="STO-R002"):
        check_permission(owner, "CreateTask")

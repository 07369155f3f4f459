from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from stoilo.audit.format.facts import OperatorAct
from stoilo.core.errors import DeniedError, UsageError
from stoilo.core.types import TaskState
from stoilo.server.admission import tokens
from stoilo.server.admission.tokens import OF_SUSPENDED, Role
from stoilo.server.db import rows
from stoilo.server.operations import access, accounts
from tests.support.serverbench import Bench, acts

NOW = 1_700_000_100


def may(bench: Bench, rpc: str) -> bool:
    """Whether the bench's researcher may make a call now."""
    try:
        with bench.store.read() as connection:
            owner = tokens.find_owner(connection, bench.token, NOW)
        tokens.check_permission(owner, rpc)
    except DeniedError as error:
        assert error.code in {"STO-R001", "STO-R009"}
        return False
    return True


def test_suspended_account_submits_nothing_until_it_is_resumed(bench: Bench) -> None:
    asyncio.run(bench.submit("before"))
    assert accounts.suspend(bench.store, "ada", "sells coins", NOW)
    with pytest.raises(DeniedError, match="STO-R009"):
        asyncio.run(bench.submit("meanwhile"))
    assert accounts.resume(bench.store, "ada", NOW)
    asyncio.run(bench.submit("after"))


@pytest.mark.parametrize("rpc", ["CreateTask", "UploadBlob", "RejectResult"])
def test_suspended_account_only_looks_after_what_it_has(bench: Bench, rpc: str) -> None:
    accounts.suspend(bench.store, "ada", "", NOW)
    assert not may(bench, rpc)
    assert all(may(bench, one) for one in OF_SUSPENDED)
    accounts.resume(bench.store, "ada", NOW)
    assert may(bench, rpc)


def test_suspended_reviewer_reviews_nothing(bench: Bench) -> None:
    with bench.store.write() as connection:
        token = tokens.issue_token(connection, "eve", Role.REVIEWER, NOW)
    accounts.suspend(bench.store, "eve", "", NOW)
    with bench.store.read() as connection:
        owner = tokens.find_owner(connection, token, NOW)
    with pytest.raises(DeniedError, match="STO-R009"):
        tokens.check_reviewer(owner, "SubmitReview")


@pytest.mark.parametrize("cancel", [True, False])
def test_tasks_of_a_suspended_account_go_on_unless_cancelled(
    bench: Bench, *, cancel: bool
) -> None:
    task_id = asyncio.run(bench.submit())
    accounts.suspend(bench.store, "ada", "", NOW)
    ended = accounts.cancel_tasks(bench.store, "ada", NOW) if cancel else 0
    bench.server.pipeline.run_once()
    with bench.store.read() as connection:
        task = rows.find_task(connection, task_id)
    assert task is not None
    assert ended == int(cancel)
    assert task.state is (TaskState.CANCELLED if cancel else TaskState.RUNNING)


def test_suspending_twice_is_one_act(bench: Bench) -> None:
    store = bench.store
    said = [accounts.suspend(store, "ada", "", NOW) for _ in range(2)]
    said += [accounts.resume(store, "ada", NOW) for _ in range(2)]
    assert said == [True, False, True, False]
    found = [one for one in acts(bench) if one.act.value.startswith("account_")]
    expected = [OperatorAct.ACCOUNT_SUSPENDED, OperatorAct.ACCOUNT_RESUMED]
    assert [one.act for one in found] == expected
    assert found[0].subject == found[1].subject != ""


@pytest.mark.parametrize("every", [True, False])
def test_revoked_tokens_end_at_once_and_others_do_not(
    bench: Bench, *, every: bool
) -> None:
    with bench.store.write() as connection:
        other = tokens.issue_token(connection, "ada", Role.RESEARCHER, NOW)
    first = access.list_tokens(bench.store, "ada")[0].token
    count = access.revoke(bench.store, "ada", "" if every else first, NOW)
    assert count == (2 if every else 1)
    assert not may(bench, "PollTask")
    bench.token = other
    assert may(bench, "PollTask") is not every
    assert access.revoke(bench.store, "ada", first, NOW) == 0


def test_leaked_token_is_revoked_by_its_text(bench: Bench) -> None:
    assert not access.revoke_leaked(bench.store, bench.token + "x", NOW)
    assert may(bench, "CreateTask")
    assert access.revoke_leaked(bench.store, bench.token, NOW)
    assert not may(bench, "CreateTask")


def test_list_says_who_may_do_what(bench: Bench) -> None:
    asyncio.run(bench.submit())
    with bench.store.write() as connection:
        tokens.issue_token(connection, "eve", Role.REVIEWER, NOW, lifetime_s=1)
    accounts.suspend(bench.store, "eve", "away", NOW)
    ada, eve = accounts.list_accounts(bench.store, NOW + 1)
    assert (ada.name, ada.roles, ada.tokens, ada.open_tasks) == (
        "ada",
        ("researcher",),
        1,
        1,
    )
    assert (eve.tokens, eve.suspended_at, eve.reason) == (0, NOW, "away")


def test_list_of_tokens_shows_no_token(bench: Bench) -> None:
    (line,) = access.list_tokens(bench.store, "ada")
    assert line.token == tokens.token_digest(bench.token)[: access.ID_CHARS]
    assert bench.token not in repr(line)


@pytest.mark.parametrize("act", [accounts.resume, accounts.cancel_tasks])
def test_unknown_account_is_named_as_such(bench: Bench, act) -> None:
    with pytest.raises(UsageError, match="STO-R029"):
        act(bench.store, "nobody", NOW)


@pytest.mark.parametrize("token", ["zzz", "not hex"])
def test_unknown_token_is_named_as_such(bench: Bench, token: str) -> None:
    with pytest.raises(UsageError, match="STO-R029"):
        access.revoke(bench.store, "ada", token, NOW)
    assert may(bench, "CreateTask")


@pytest.mark.parametrize("name", ["", "x" * 200, "a\nb"])
def test_senseless_name_gets_no_token(bench: Bench, name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="STO-R029"):
        access.add_token(bench.store, tmp_path, name, 60, NOW)

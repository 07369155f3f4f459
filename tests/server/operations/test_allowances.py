"""What an operator changes about an account, and what a holder does to his own."""

from __future__ import annotations

import asyncio

import pytest

from stoilo.audit.format.facts import OperatorAct
from stoilo.core.digests import content_digest
from stoilo.core.errors import DeniedError, PolicyRefusal, UsageError
from stoilo.policies.policy import Quota, default_policy
from stoilo.server.admission import tokens
from stoilo.server.admission.tokens import DAY_S, Role
from stoilo.server.api.tasks import WAITS_S
from stoilo.server.db.records import Owner
from stoilo.server.operations import access, accounts
from tests.support.serverbench import Bench, acts

NOW = 1_700_000_100
DATA = b"x" * 60


def new_token(
    bench: Bench, name: str, role: Role = Role.RESEARCHER, **more: str
) -> str:
    with bench.store.write() as connection:
        return tokens.issue_token(connection, name, role, bench.clock(), **more)


def owner_of(bench: Bench, token: str) -> Owner:
    with bench.store.read() as connection:
        return tokens.find_owner(connection, token, bench.clock())


def submit(bench: Bench, *keys: str, token: str = "") -> None:
    bench.token = token or bench.token
    for key in keys:
        asyncio.run(bench.submit(key))


def allow(
    bench: Bench, name: str, *, group: bool = False, **changes: int | None
) -> None:
    accounts.allow(bench.store, name, changes, NOW, group=group)


def test_account_has_no_more_open_tasks_than_it_is_allowed(bench: Bench) -> None:
    allow(bench, "ada", open_tasks=2)
    submit(bench, "a", "b")
    with pytest.raises(PolicyRefusal, match=r"more than 2 unfinished tasks.*STO-R004"):
        submit(bench, "c")
    accounts.cancel_tasks(bench.store, "ada", NOW)
    submit(bench, "c")


def test_allowance_above_the_policy_has_no_effect(bench_maker, tmp_path) -> None:
    bench = bench_maker(tmp_path, quota=Quota(running_tasks=1))
    allow(bench, "ada", open_tasks=100)
    submit(bench, "a")
    with pytest.raises(PolicyRefusal, match="more than 1 unfinished"):
        submit(bench, "b")


def test_accounts_of_a_group_share_its_allowance(bench: Bench) -> None:
    first, second, third = bench.token, new_token(bench, "ben"), new_token(bench, "eve")
    for name in ("ada", "ben"):
        accounts.join_group(bench.store, name, "bio", NOW)
    allow(bench, "bio", group=True, open_tasks=2)
    submit(bench, "a", token=first)
    submit(bench, "b", token=second)
    for token in (first, second):
        with pytest.raises(PolicyRefusal, match=r"of group bio.*STO-R004"):
            submit(bench, "c", token=token)
    submit(bench, "c", token=third)  # of no group


def test_tasks_that_come_together_share_a_groups_allowance(bench: Bench) -> None:
    others = [bench.token, new_token(bench, "ben"), new_token(bench, "cleo")]
    for name in ("ada", "ben", "cleo"):
        accounts.join_group(bench.store, name, "bio", NOW)
    allow(bench, "bio", group=True, open_tasks=4)

    async def burst() -> list[object]:
        calls = [
            bench.server.submissions.create(token, bench.request(f"k{number}"))
            for number in range(4)
            for token in others
        ]
        return await asyncio.gather(*calls, return_exceptions=True)

    found = asyncio.run(burst())
    assert sum(not isinstance(one, Exception) for one in found) == 4


def test_tasks_a_day_are_counted_also_when_they_are_over(bench: Bench) -> None:
    allow(bench, "ada", tasks_per_day=2)
    submit(bench, "a", "b")
    accounts.cancel_tasks(bench.store, "ada", NOW)
    with pytest.raises(PolicyRefusal, match=r"more than 2 tasks a day.*STO-R005"):
        submit(bench, "c")
    bench.clock.now += DAY_S + 1
    submit(bench, "c")


@pytest.mark.parametrize("group", [True, False])
def test_bytes_of_blobs_are_bounded_by_account_and_by_group(
    bench: Bench, *, group: bool
) -> None:
    first, second = bench.token, new_token(bench, "ben")
    quota = default_policy().quota("researcher")
    for name in ("ada", "ben"):
        accounts.join_group(bench.store, name, "bio", NOW)
    allow(bench, "bio" if group else "ada", group=group, blob_bytes=100)
    blobs, name = bench.server.blobs, content_digest(DATA)
    with blobs.begin(owner_of(bench, first).account_id, name, len(DATA), quota):
        other = owner_of(bench, second if group else first).account_id
        with pytest.raises(PolicyRefusal, match="STO-R006"):
            blobs.begin(other, name, len(DATA), quota)
        with blobs.begin(other, name, 40, quota):
            pass


def test_changes_of_an_account_are_leaves_without_its_name(bench: Bench) -> None:
    accounts.join_group(bench.store, "ada", "bio", NOW)
    allow(bench, "ada", open_tasks=3)
    allow(bench, "bio", group=True, share=2)
    accounts.change_role(bench.store, "ada", Role.OPERATOR, NOW)
    access.expire(bench.store, "ada", "", NOW + 5, NOW)
    found = [one for one in acts(bench) if one.act is OperatorAct.ACCOUNT_CHANGED]
    assert [bool(one.subject) for one in found] == [True, True, False, True, True]
    assert (found[3].role, found[4].until) == ("operator", NOW + 5)
    assert all(word not in repr(found) for word in ("ada", "bio"))


def test_what_changes_nothing_is_no_leaf(bench: Bench) -> None:
    allow(bench, "ada", open_tasks=3)
    before = len(acts(bench))
    allow(bench, "ada", open_tasks=3)
    allow(bench, "ada")
    assert not accounts.join_group(bench.store, "ada", "", NOW)
    assert accounts.change_role(bench.store, "ada", Role.RESEARCHER, NOW) == 0
    assert access.expire(bench.store, "ada", "", NOW + 10_000 * DAY_S, NOW) == 0
    assert len(acts(bench)) == before


def test_allowance_that_is_taken_back_is_the_policys(bench: Bench) -> None:
    allow(bench, "ada", open_tasks=0)
    with pytest.raises(PolicyRefusal):
        submit(bench, "a")
    allow(bench, "ada", open_tasks=None)
    submit(bench, "a")


def test_token_ends_earlier_and_never_later(bench: Bench) -> None:
    assert access.expire(bench.store, "ada", "", NOW + 60, NOW) == 1
    assert access.expire(bench.store, "ada", "", NOW + 120, NOW) == 0
    bench.clock.now = NOW + 59
    owner_of(bench, bench.token)
    bench.clock.now = NOW + 60
    with pytest.raises(DeniedError, match="STO-R001"):
        owner_of(bench, bench.token)


def test_role_is_of_all_tokens_but_a_services(bench: Bench) -> None:
    service = new_token(bench, "ada", Role.OPERATOR, scope="metrics")
    assert accounts.change_role(bench.store, "ada", Role.AUDITOR, NOW) == 1
    assert owner_of(bench, service).role == "operator"
    with pytest.raises(DeniedError, match="STO-R002"):
        submit(bench, "a")


def test_reviewers_token_keeps_its_role(bench: Bench) -> None:
    token = new_token(bench, "ada", Role.REVIEWER)
    assert accounts.change_role(bench.store, "ada", Role.OPERATOR, NOW) == 1
    assert owner_of(bench, token).role == "reviewer"


def test_new_role_ends_sessions_and_links_of_the_former_one(bench: Bench) -> None:
    with bench.store.write() as connection:
        secrets = [
            tokens.issue_link(connection, "ada", Role.OPERATOR, NOW),
            tokens.open_session(connection, bench.token, NOW),
        ]
    accounts.change_role(bench.store, "ada", Role.OPERATOR, NOW)
    assert owner_of(bench, secrets[0]).role == "operator"  # of that role already
    with pytest.raises(DeniedError, match="STO-R001"):
        owner_of(bench, secrets[1])


def test_facts_say_what_is_used_and_by_whom(bench: Bench) -> None:
    accounts.join_group(bench.store, "ada", "bio", NOW)
    allow(bench, "ada", open_tasks=40)
    allow(bench, "bio", group=True, tasks_per_day=9, share=3)
    submit(bench, "a", "b", "c")
    found = accounts.describe(bench.store, "ada", default_policy(), bench.clock())
    uses = [(one.whose, one.used, one.most) for one in found.uses]
    most = default_policy().quota("researcher").blob_bytes
    assert uses == [("", 3, 40), ("", 0, most), ("group bio", 3, 9)]
    assert (found.group, found.share) == ("bio", 3)


def test_holder_makes_and_ends_a_token_of_his_own(bench: Bench) -> None:
    owner = owner_of(bench, bench.token)
    token = access.issue_own(bench.store, owner, "laptop", 30, bench.clock())
    assert owner_of(bench, token).account_id == owner.account_id
    line = access.list_tokens(bench.store, "ada")[-1]
    assert (line.name, line.role) == ("laptop", "researcher")
    assert access.end_own(bench.store, owner, line.token, bench.clock())
    assert not access.end_own(bench.store, owner, line.token, bench.clock())
    with pytest.raises(DeniedError):
        owner_of(bench, token)


@pytest.mark.parametrize("said", ["", "0", "zzz", "theirs"])
def test_token_of_another_account_is_not_there(bench: Bench, said: str) -> None:
    theirs = tokens.token_digest(new_token(bench, "ben"))[: access.ID_CHARS]
    owner = owner_of(bench, bench.token)
    named = theirs if said == "theirs" else said
    with pytest.raises(DeniedError, match=r"no such token.*STO-R003"):
        access.end_own(bench.store, owner, named, NOW)
    assert access.list_tokens(bench.store, "ben")[0].revoked_at == 0


@pytest.mark.parametrize(
    ("label", "days"), [("x" * 65, 1), ("a\nb", 1), ("", 0), ("", 366)]
)
def test_odd_token_is_refused(bench: Bench, label: str, days: int) -> None:
    owner = owner_of(bench, bench.token)
    with pytest.raises(UsageError, match=r"STO-R0(10|29)"):
        access.issue_own(bench.store, owner, label, days, NOW)


def test_token_for_some_calls_makes_none_for_all(bench: Bench) -> None:
    owner = owner_of(bench, new_token(bench, "ada", scope="PollTask,IssueToken"))
    with pytest.raises(DeniedError, match="STO-R002"):
        access.issue_own(bench.store, owner, "", 1, NOW)


def test_holder_has_so_many_good_tokens_and_no_more(bench: Bench) -> None:
    owner = owner_of(bench, bench.token)
    for _ in range(access.MOST_OWN - 1):
        access.issue_own(bench.store, owner, "", 1, bench.clock())
    with pytest.raises(PolicyRefusal, match="STO-R005"):
        access.issue_own(bench.store, owner, "", 1, bench.clock())
    bench.clock.now += DAY_S  # those of a day are over
    access.issue_own(bench.store, owner, "", 1, bench.clock())


def explained(bench: Bench, task_id: str) -> str:
    bench.clock.now += WAITS_S
    return str(bench.poll(task_id).explanation)


def test_who_waits_learns_how_his_account_stands(bench: Bench) -> None:
    allow(bench, "ada", open_tasks=40)
    task_id = asyncio.run(bench.submit("a"))
    submit(bench, "b", "c")
    assert "your account has" not in bench.poll(task_id).explanation  # just now
    said = explained(bench, task_id)
    assert "your account has 3 of 40 unfinished tasks" in said
    assert "shares" not in said  # nobody else waits


def test_who_waits_learns_of_his_groups_numbers_and_share(bench: Bench) -> None:
    ada, others = (
        bench.token,
        [new_token(bench, name) for name in ("ben", "eve", "zoe")],
    )
    for name in ("ada", "ben"):
        accounts.join_group(bench.store, name, "bio", NOW)
    allow(bench, "bio", group=True, open_tasks=100, share=3)
    task_id = asyncio.run(bench.submit("a"))
    for token in others[:2]:  # zoe has nothing waiting, and no share now
        submit(bench, "b", token=token)
    bench.token = ada
    said = explained(bench, task_id)
    assert "group bio has 2 of 100 unfinished tasks" in said
    assert "group bio has 3 of 4 shares" in said


def test_nobody_learns_of_others_more_than_how_many_share(bench: Bench) -> None:
    task_id = asyncio.run(bench.submit("a"))
    ada = bench.token
    submit(bench, "b", token=new_token(bench, "ben"))
    bench.token = ada
    said = explained(bench, task_id)
    assert "your account has 1 of 2 shares" in said
    assert "ben" not in said


def test_workunits_carry_their_share(bench: Bench) -> None:
    accounts.join_group(bench.store, "ada", "bio", NOW)
    allow(bench, "bio", group=True, share=5)
    grouped = asyncio.run(bench.issued("a"))[0]
    accounts.join_group(bench.store, "ada", "", NOW)
    alone = asyncio.run(bench.issued("b"))[0]
    found = [bench.engine.specs[name] for name in (grouped, alone)]
    assert [(one.share, one.weight) for one in found] == [
        ("group bio", 5),
        (f"account {owner_of(bench, bench.token).account_id}", 1),
    ]

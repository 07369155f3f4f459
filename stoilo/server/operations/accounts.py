"""Accounts: who there is, what each may do and use, and how that ends.

Works beside a running server, which looks an account up at every call: what is done here
counts from the next one on. Each act is noted for the log, under the account's salted
commitment. Trust: the caller is the operator, who can read the data directory anyway, or
for `describe` the account's holder, authenticated by the server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
from sqlalchemy import delete, insert, select, update

from stoilo.audit.format.facts import OperatorAct
from stoilo.audit.format.records import task_commitment
from stoilo.core.errors import UsageError
from stoilo.core.types import TaskState
from stoilo.server.admission import quotas, tokens
from stoilo.server.admission.quotas import Allowance
from stoilo.server.db import rows, schema
from stoilo.server.db.records import Outcome
from stoilo.server.db.store import Store
from stoilo.server.log.outbox import note_act
from stoilo.server.log.public_records import finish_task, submitter_commitment
from stoilo.server.operations.access import (
    NAME_CHARS,
    WORD_CHARS,
    TokenLine,
    change_tokens,
    check_word,
    find_account,
    has_role,
    is_good,
    list_tokens,
    note_change,
    role_of,
    tokens_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection, Row

    from stoilo.policies.policy import Policy


REASON_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class AccountLine:
    """One account; times in s since 1970."""

    name: str  # as it was made
    roles: tuple[str, ...]  # of its tokens that are good
    tokens: int  # how many are
    group: str  # empty: of none
    open_tasks: int  # tasks that are not final
    created_at: int  # when it was made, or its salt renewed
    suspended_at: int = 0  # since when it may submit nothing; 0: it may
    reason: str = ""  # why, in the operator's words


@dataclass(frozen=True, slots=True)
class Use:
    """One thing that is limited: how much of it is used, and how much may be."""

    whose: str  # "" for the account's own, ``group NAME`` for its members' together
    what: str
    used: int
    most: int


@dataclass(frozen=True, slots=True)
class AccountFacts:
    """One account, as its holder and the operator see it."""

    name: str
    group: str  # empty: of none
    suspended_at: int  # s since 1970, 0: it is not
    share: int  # its weight, or its group's, beside others when volunteers are short
    uses: tuple[Use, ...]
    tokens: tuple[TokenLine, ...]  # oldest first


def list_accounts(store: Store, now: int) -> tuple[AccountLine, ...]:
    """Return every account, by name."""
    accounts, suspended = schema.account, schema.suspension
    query = (
        select(accounts, suspended.c.since, suspended.c.reason)
        .outerjoin(suspended, suspended.c.account_id == accounts.c.id)
        .order_by(accounts.c.name)
    )
    with store.read() as connection:
        return tuple(
            _line(connection, row, now) for row in connection.execute(query).all()
        )


def _line(connection: Connection, row: Row, now: int) -> AccountLine:  # type: ignore[type-arg]  # of two tables
    good = [one for one in tokens_of(connection, row.id) if is_good(one, now)]
    return AccountLine(
        name=row.name,
        roles=tuple(sorted({one.role for one in good})),
        tokens=len(good),
        group=row.group_name,
        open_tasks=rows.count_tasks(connection, row.id),
        created_at=row.created_at,
        suspended_at=row.since or 0,
        reason=row.reason or "",
    )


def describe(store: Store, name: str, policy: Policy, now: int) -> AccountFacts:
    """Return everything about an account but its tokens' text; raises ``STO-R029``.

    `policy` is the server's.
    """
    found = schema.suspension
    with store.read() as connection:
        account = find_account(connection, name)
        since = select(found.c.since).where(found.c.account_id == account.id)
        quota = policy.quota(role_of(connection, name, now))
        kinds = (quotas.OPEN, quotas.DAY, quotas.BYTES)
        budgets = quotas.find_budgets(connection, account.id, quota, now, kinds)
        return AccountFacts(
            name,
            account.group_name,
            connection.scalar(since) or 0,
            quotas.find_shares(connection, account.id)[account.id].weight,
            tuple(Use(one.whose, one.what, one.used, one.most) for one in budgets),
            list_tokens(store, name),
        )


def change_role(store: Store, name: str, role: tokens.Role, now: int) -> int:
    """Give an account's good tokens and passkeys another role; returns how many had not.

    A reviewer's tokens stay his: they come and go with his key. Raises ``STO-R029``.
    """
    with store.write() as connection:
        account = find_account(connection, name)
        changed = [
            one
            for one in tokens_of(connection, account.id)
            if has_role(one, now) and one.role != role.value
        ]
        change_tokens(connection, account, changed, now, role=role.value)
        # Who is signed in, or holds a link, is so in the former role.
        signed_in = [
            one.digest
            for one in tokens_of(connection, account.id)
            if one.scope in tokens.CONSOLE_SCOPES and one.role != role.value
        ]
        tokens.revoke_digests(connection, signed_in, now)
    return len(changed)


def join_group(store: Store, name: str, group: str, now: int) -> bool:
    """Put an account into a group, into none if empty; False where it was there."""
    if group:
        check_word(group)
    table = schema.account
    with store.write() as connection:
        account = find_account(connection, name)
        if account.group_name == group:
            return False
        query = update(table).where(table.c.id == account.id)
        connection.execute(query.values(group_name=group))
        note_change(connection, account, now)
    return True


def allow(
    store: Store, name: str, changes: Mapping[str, int | None], now: int, *, group: bool
) -> Allowance:
    """Change what an account, or the group `name`, may use; returns what it is then.

    `changes` are fields of `Allowance`, None for what the policy says. Raises ``STO-R029``.
    """
    table, kind = schema.allowance, "group" if group else "account"
    check_word(name, WORD_CHARS if group else NAME_CHARS)
    which = (table.c.kind == kind, table.c.name == name)
    with store.write() as connection:
        account = None if group else find_account(connection, name)
        columns = [table.c[one] for one in Allowance.__struct_fields__]
        row = connection.execute(select(*columns).where(*which)).first()
        before = Allowance(*row) if row else Allowance()
        after = msgspec.structs.replace(before, **changes)
        if changes and after != before:
            connection.execute(delete(table).where(*which))
            if after != Allowance():
                values = {"kind": kind, "name": name} | msgspec.structs.asdict(after)
                connection.execute(insert(table).values(values))
            note_change(connection, account, now)
    return after


def suspend(store: Store, name: str, reason: str, now: int) -> bool:
    """Let an account submit nothing; False where it was suspended. Raises ``STO-R029``."""
    table = schema.suspension
    with store.write() as connection:
        account = find_account(connection, name)
        known = select(table.c.since).where(table.c.account_id == account.id)
        if connection.scalar(known) is not None:
            return False
        values = {"account_id": account.id, "since": now}
        query = insert(table).values(**values, reason=reason[:REASON_CHARS])
        connection.execute(query)
        act, subject = OperatorAct.ACCOUNT_SUSPENDED, submitter_commitment(account.salt)
        note_act(connection, act, now, subject=subject)
    return True


def resume(store: Store, name: str, now: int) -> bool:
    """Let a suspended account submit again; False where it was not. Raises ``STO-R029``."""
    table = schema.suspension
    with store.write() as connection:
        account = find_account(connection, name)
        query = delete(table).where(table.c.account_id == account.id)
        if not connection.execute(query).rowcount:
            return False
        act, subject = OperatorAct.ACCOUNT_RESUMED, submitter_commitment(account.salt)
        note_act(connection, act, now, subject=subject)
    return True


def cancel_tasks(store: Store, name: str, now: int) -> int:
    """Cancel what an account has open; returns how many. Raises ``STO-R029``."""
    table = schema.task
    with store.read() as connection:
        account = find_account(connection, name)
        query = select(table.c.id).where(
            table.c.account_id == account.id, table.c.state.in_(rows.OPEN_STATES)
        )
        found = list(connection.scalars(query))
    ended = [cancel_for_operator(store, task_id, now) for task_id in found]
    return ended.count(TaskState.CANCELLED)


def cancel_for_operator(store: Store, task_id: str, now: int) -> TaskState:
    """End anybody's task, with the operator's act in the log; returns its state then.

    A running server takes the workunit back by itself.

    Raises:
        UsageError: ``STO-R029`` no such task.
    """
    with store.write() as connection:
        task = rows.find_task(connection, task_id[:64])
        if task is None:
            raise UsageError("STO-R029", "there is no such task")
        outcome = Outcome(
            TaskState.CANCELLED,
            task.attempt,
            error_text="cancelled by the project's operator",
            code="STO-R062",
        )
        if not finish_task(connection, task, outcome, now):
            return task.state
        act, name = OperatorAct.TASK_CANCELLED, task_commitment(task.task_id)
        note_act(connection, act, now, task=name)
    return outcome.state

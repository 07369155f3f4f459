"""Researchers' accounts and their tokens: list, add, revoke, suspend, resume.

Works beside a running server, which looks a token up at every call: what is done here
counts from the next one on. Each act is noted for the log, under the account's salted
commitment. Trust: the caller is the operator, who can read the data directory anyway.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
from sqlalchemy import delete, insert, select

from stoilo.audit.format.facts import OperatorAct
from stoilo.audit.format.records import task_commitment
from stoilo.core.errors import InternalError, UsageError
from stoilo.core.types import TaskState
from stoilo.executor.verifier.targets import ReviewerFile, ReviewerKey
from stoilo.server.admission import tokens
from stoilo.server.config import load_config
from stoilo.server.data_directory import ConnectionFile, keys_of, read_connection_file
from stoilo.server.db import rows, schema
from stoilo.server.db.records import Outcome
from stoilo.server.db.store import Store
from stoilo.server.log.outbox import note_act
from stoilo.server.log.public_records import finish_task, submitter_commitment
from stoilo.signer.development.changes import (
    list_reviewers,
    publish_reviewers,
    with_reviewer,
    without_reviewer,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from sqlalchemy import Connection, Row


NAME_CHARS: Final = 128
REASON_CHARS: Final = 300
ID_CHARS: Final = 12  # So much of a token's digest names it among its account's


@dataclass(frozen=True, slots=True)
class AccountLine:
    """One account; times in s since 1970."""

    name: str  # as it was made
    roles: tuple[str, ...]  # of its tokens that are good
    tokens: int  # how many are
    open_tasks: int  # tasks that are not final
    created_at: int  # when it was made, or its salt renewed
    suspended_at: int = 0  # since when it may submit nothing; 0: it may
    reason: str = ""  # why, in the operator's words


@dataclass(frozen=True, slots=True)
class TokenLine:
    """One token, never its text; times in s since 1970."""

    token: str  # the beginning of its digest
    role: str  # what its holder is
    scope: str  # ``*`` or the calls that it may make
    created_at: int  # when it was made
    expires_at: int  # when it ends by itself
    revoked_at: int = 0  # when it was revoked, 0: it was not


@contextlib.contextmanager
def open_accounts(data: Path, environ: Mapping[str, str]) -> Iterator[Store]:
    """Yield the server's tables of a data directory.

    Raises:
        UsageError: ``STO-U004`` for a directory that is none.
    """
    keys_of(data)
    config, _ = load_config(data.absolute(), {}, environ)
    with contextlib.closing(Store.open(config.database_url)) as store:
        yield store


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
    good = [one for one in _tokens(connection, row.id) if _is_good(one, now)]
    return AccountLine(
        name=row.name,
        roles=tuple(sorted({one.role for one in good})),
        tokens=len(good),
        open_tasks=rows.count_open(connection, row.id),
        created_at=row.created_at,
        suspended_at=row.since or 0,
        reason=row.reason or "",
    )


def list_tokens(store: Store, name: str) -> tuple[TokenLine, ...]:
    """Return an account's tokens, oldest first; raises ``STO-R029``."""
    with store.read() as connection:
        account_id, _ = _find(connection, name)
        return tuple(
            TokenLine(
                row.digest[:ID_CHARS],
                row.role,
                row.scope,
                row.created_at,
                row.expires_at,
                row.revoked_at or 0,
            )
            for row in _tokens(connection, account_id)
        )


def add_researcher(
    store: Store, data: Path, name: str, lifetime_s: int, now: int
) -> ConnectionFile:
    """Return a connection with a new token for the account `name`, made if new.

    Raises:
        UsageError: ``STO-U004``: the server has never run; ``STO-R029``: no name.
    """
    _check_name(name)
    connection_file = read_connection_file(data)
    role = tokens.Role.RESEARCHER
    with store.write() as connection:
        token = tokens.issue_token(connection, name, role, now, lifetime_s=lifetime_s)
    return msgspec.structs.replace(connection_file, token=token)


def make_link(
    data: Path, name: str, role: tokens.Role, environ: Mapping[str, str], now: int
) -> str:
    """Return a one-time link to the console for the account `name`, made if new.

    Raises:
        UsageError: ``STO-U004``: the server has never run; ``STO-R029``: no name.
    """
    _check_name(name)
    config, _ = load_config(data.absolute(), {}, environ)
    url = config.project_url or read_connection_file(data).http
    with open_accounts(data, environ) as store, store.write() as connection:
        secret = tokens.issue_link(connection, name, role, now)
    return f"{url}console/sign-in?link={secret}"


def _check_name(name: str) -> None:
    if not name or len(name) > NAME_CHARS or not name.isprintable():
        raise UsageError("STO-R029", f"{name[:40]!r} cannot be an account's name")


def revoke(store: Store, name: str, token: str, now: int) -> int:
    """Revoke an account's token, all of them if empty; returns how many were good till now.

    Args:
        store: the server's tables.
        name: of the account.
        token: as `list_tokens` names it.
        now: s.

    Raises:
        UsageError: ``STO-R029``: no such account, or no such token of it.
    """
    with store.write() as connection:
        account_id, _ = _find(connection, name)
        digests = [row.digest for row in _tokens(connection, account_id)]
        named = [digest for digest in digests if digest.startswith(token)]
        # Digests' beginnings may meet: rather none than the wrong one.
        if token and len(named) != 1:
            raise UsageError("STO-R029", "the account has no such token")
        return tokens.revoke_digests(connection, named, now)


def revoke_leaked(store: Store, token: str, now: int) -> bool:
    """Revoke a token that turned up somewhere, by its text; False for no good one."""
    with store.write() as connection:
        return tokens.revoke_token(connection, token, now)


def suspend(store: Store, name: str, reason: str, now: int) -> bool:
    """Let an account submit nothing; False where it was suspended. Raises ``STO-R029``."""
    table = schema.suspension
    with store.write() as connection:
        account_id, salt = _find(connection, name)
        known = select(table.c.since).where(table.c.account_id == account_id)
        if connection.scalar(known) is not None:
            return False
        values = {"account_id": account_id, "since": now}
        query = insert(table).values(**values, reason=reason[:REASON_CHARS])
        connection.execute(query)
        act, subject = OperatorAct.ACCOUNT_SUSPENDED, submitter_commitment(salt)
        note_act(connection, act, now, subject=subject)
    return True


def resume(store: Store, name: str, now: int) -> bool:
    """Let a suspended account submit again; False where it was not. Raises ``STO-R029``."""
    table = schema.suspension
    with store.write() as connection:
        account_id, salt = _find(connection, name)
        query = delete(table).where(table.c.account_id == account_id)
        if not connection.execute(query).rowcount:
            return False
        act, subject = OperatorAct.ACCOUNT_RESUMED, submitter_commitment(salt)
        note_act(connection, act, now, subject=subject)
    return True


def cancel_tasks(store: Store, name: str, now: int) -> int:
    """Cancel what an account has open; returns how many. Raises ``STO-R029``."""
    table = schema.task
    unfinished = [state.value for state in TaskState if not state.final]
    with store.read() as connection:
        account_id, _ = _find(connection, name)
        query = select(table.c.id).where(
            table.c.account_id == account_id, table.c.state.in_(unfinished)
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


def _find(connection: Connection, name: str) -> tuple[int, str]:
    """Return an account's row and salt; raises ``STO-R029``."""
    table = schema.account
    query = select(table.c.id, table.c.salt).where(table.c.name == name)
    row = connection.execute(query).first()
    if row is None:
        raise UsageError("STO-R029", f"there is no account {name[:40]!r}")
    return row.id, row.salt


def _tokens(connection: Connection, account_id: int) -> list[Row]:  # type: ignore[type-arg]  # of `token`
    table = schema.token
    query = select(table).where(table.c.account_id == account_id).order_by(table.c.id)
    return list(connection.execute(query).all())


def _is_good(row: Row, now: int) -> bool:  # type: ignore[type-arg]  # of `token`
    return row.revoked_at is None and row.expires_at > now


def enroll(
    data: Path,  # directory of a server that has run before
    name: str,  # of the reviewer's account, made if new
    key: str,  # public key, hex
    # other accounts of the same person: their tasks he cannot review
    accounts: tuple[str, ...],
    environ: Mapping[str, str],  # for the server's settings
    proposal: Path | None = None,  # file for the ceremony, ``keys.json``
) -> ConnectionFile:
    """Name `key` as a reviewer's in the release; returns his connection.

    A released project's reviewers are named by people: then the account is made here,
    and `proposal` gets the list that the next ceremony is to sign.

    Raises:
        UsageError: ``STO-U004`` no such data directory, ``STO-R029`` no such account,
            ``STO-K091`` a released project, and no `proposal`.
        TrustError: ``STO-K001``, the key is none.
    """
    keys, connection_file = keys_of(data), read_connection_file(data)
    now = int(time.time())
    with open_accounts(data, environ) as store, store.write() as connection:
        token = tokens.issue_token(connection, name, tokens.Role.REVIEWER, now)
        salts = [_find(connection, one)[1] for one in (name, *accounts)]
        own = tuple(map(submitter_commitment, salts))
        note_act(connection, OperatorAct.REVIEWER_ENROLLED, now, subject=own[0])
        entry = ReviewerKey(key, name, own)
        if proposal is None:
            publish_reviewers(keys, lambda named: with_reviewer(named, entry), now)
        else:
            _propose(proposal, with_reviewer(reviewers_of(data), entry))
    return msgspec.structs.replace(connection_file, token=token)


def withdraw(data: Path, key: str, proposal: Path | None = None) -> None:
    """Take a reviewer's key out of the release; raises ``STO-K054``.

    Of a released project: write the list for the next ceremony to `proposal`.
    """
    if proposal is None:
        publish_reviewers(
            keys_of(data), lambda named: without_reviewer(named, key), int(time.time())
        )
    else:
        _propose(proposal, without_reviewer(reviewers_of(data), key))


def _propose(place: Path, named: ReviewerFile) -> None:
    """Write the list that a ceremony is to sign; raises ``STO-U006``."""
    try:
        place.write_bytes(msgspec.json.encode(named))
    except OSError as error:
        raise InternalError("STO-U006", f"{place.name} cannot be written") from error


def reviewers_of(data: Path) -> tuple[ReviewerKey, ...]:
    """Return the reviewers whom the release names."""
    return list_reviewers(keys_of(data))

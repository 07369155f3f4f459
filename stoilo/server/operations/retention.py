"""Deleting what need not be kept any longer, with a record of the deletion in the log.

What can be deleted is what the log only commits to: sources, arguments, results, and the
salts without which nobody can tie a commitment to anything any more. Leaves and public
records stay for ever. The deletion and the event that tells of it are one transaction.
Files of blobs go once that is durable, or with the next such command; published sources
too, and again when the event is logged, in case the command was killed in between. Works
beside a running server and on a stopped one.

Trust: the caller is the operator, who can read the data directory anyway.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from sqlalchemy import Connection, delete, func, select, update

from stoilo.audit.format.facts import RetentionRecord
from stoilo.audit.log.side import SideStore, side_path
from stoilo.core.errors import UsageError
from stoilo.core.types import TaskState
from stoilo.executor.verifier.targets import ReviewerKey
from stoilo.server.config import load_config
from stoilo.server.db import schema
from stoilo.server.db.bulk import delete_in, select_in
from stoilo.server.db.records import TaskSpec
from stoilo.server.db.store import Store
from stoilo.server.log.outbox import NO_ORIGIN, make_mark, note_record
from stoilo.server.log.public_records import submitter_commitment
from stoilo.signer.development.changes import list_reviewers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


CHUNK = 400
# Digests of published sources in one record; more go into further records
MOST_PUBLISHED = 160


class What(StrEnum):
    """What a retention command deletes, always of tasks that have long been final."""

    SOURCES = "sources"  # task and validator modules, also where they were published
    ARGUMENTS = "arguments"  # encoded arguments, and the blobs that they name
    # values, errors' texts, output, blobs of large values; what trainers said
    RESULTS = "results"
    SALTS = "salts"  # nonces of statements and results, salts of accounts long unused


@dataclass(frozen=True, slots=True)
class Retained:
    """What one command did."""

    what: What  # was deleted
    before: int  # of tasks final before this time, s
    count: int  # how many things
    published: tuple[str, ...] = ()  # digests of published sources among them


@dataclass(frozen=True, slots=True)
class _Old:
    """A task that is final, logged and old enough."""

    task_id: str
    account_id: int
    spec: TaskSpec


@dataclass(frozen=True, slots=True)
class _Split:
    """All tasks, as the old ones and what the others still name."""

    old: tuple[_Old, ...]  # tasks to delete of
    used: frozenset[str]  # digests that younger tasks name


def retain(
    data: Path, what: What, before: int, now: int, environ: Mapping[str, str]
) -> Retained:
    """Delete in the data directory of a server, running or not.

    Args:
        data: the server's data directory.
        what: is to go.
        before: of tasks final before this time, s.
        now: Unix seconds; `before` must not be later.
        environ: for the server's settings.

    Raises:
        UsageError: ``STO-U004`` no such data directory, ``STO-U003`` a time to come.
        InternalError: ``STO-R030``.
    """
    if before > now:
        raise UsageError("STO-U003", "only what is over can be deleted")
    if not side_path(data).parent.is_dir():
        raise UsageError("STO-U004", "this is not the data directory of a server")
    keys = data / "keys"
    named = list_reviewers(keys) if (keys / "metadata").is_dir() else ()
    config, _ = load_config(data.absolute(), {}, environ)
    # The rows first: a file without a row is swept later, a row without file never.
    with contextlib.closing(Store.open(config.database_url)) as store:
        done = delete_old(store, data / "blobs", what, before, now, named)
        _forget_pages(store)
    if done.published:
        with contextlib.closing(SideStore.open(data)) as side:
            side.delete(done.published, now)
    return done


def delete_old(
    store: Store,
    blobs: Path,
    what: What,
    before: int,
    now: int,
    reviewers: Sequence[ReviewerKey] = (),
) -> Retained:
    """Delete in the database and under `blobs`, and note it for the log, together.

    Published sources are not touched here; the caller deletes them from the side store.
    """
    with store.write() as connection:
        if store.engine.dialect.name == "sqlite":
            # SQLite leaves deleted bytes in its pages else.
            connection.exec_driver_sql("PRAGMA secure_delete = ON")
        split = _split(connection, before)
        published: tuple[str, ...] = ()
        match what:
            case What.SOURCES:
                count, published = _delete_sources(connection, split, before)
            case What.ARGUMENTS:
                count = _delete_arguments(connection, split)
            case What.RESULTS:
                count = _delete_results(connection, split)
                told = schema.training.c.updated_at < before
                count += connection.execute(
                    delete(schema.training).where(told)
                ).rowcount
            case What.SALTS:
                count = _delete_salts(connection, split, before, now, reviewers)
        done = Retained(what, before, count, published)
        if count:
            _note(connection, done, now)
    if what in {What.ARGUMENTS, What.RESULTS}:
        _sweep_blobs(store, blobs)
    return done


def _sweep_blobs(store: Store, blobs: Path) -> None:
    """Remove the files that no row names, also those that a killed command left.

    Uploads rename into place under the same lock, together with their row.
    """
    for shelf in sorted(blobs.glob("[0-9a-f][0-9a-f]")):
        # Under the writers' lock: an upload of the same bytes is before or after.
        with store.write() as connection:
            digest, names = schema.blob.c.digest, [one.name for one in shelf.iterdir()]
            known = {row[0] for row in select_in(connection, [digest], digest, names)}
            for name in set(names) - known:
                (shelf / name).unlink(missing_ok=True)


def _note(connection: Connection, done: Retained, now: int) -> None:
    """Note the deletion; one record holds so many published digests only."""
    parts = list(_chunks(done.published, MOST_PUBLISHED)) or [()]
    counts = [len(part) for part in parts[1:]]
    for part, count in zip(parts, [done.count - sum(counts), *counts], strict=True):
        record = RetentionRecord(
            origin=NO_ORIGIN,
            time=now,
            what=done.what.value,
            before=done.before,
            count=count,
            published=tuple(part),
            mark=make_mark(),
        )
        note_record(connection, f"retention:{record.mark}", record)


def _split(connection: Connection, before: int) -> _Split:
    """Return who is old; whose events are not yet logged is not."""
    table, waiting = schema.task, _unlogged(connection)
    final = {state.value for state in TaskState if state.final}
    old, used = [], set()
    columns = (table.c.state, table.c.finished_at, table.c.spec, table.c.account_id)
    query = select(table.c.id, *columns)
    for row in connection.execute(query):
        spec = msgspec.json.decode(row.spec, type=TaskSpec)
        is_final = row.state in final and (row.finished_at or before) < before
        if is_final and row.id not in waiting:
            old.append(_Old(row.id, row.account_id, spec))
        else:
            used |= {spec.task_module, spec.validator_module, spec.arguments}
            used.update(spec.blobs)
    return _Split(tuple(old), frozenset(used))


def _unlogged(connection: Connection) -> set[str]:
    table = schema.event
    keys = connection.scalars(select(table.c.key).where(table.c.log_index.is_(None)))
    return {key.partition(":")[2].partition("_")[0] for key in keys}


def _delete_sources(
    connection: Connection, split: _Split, before: int
) -> tuple[int, tuple[str, ...]]:
    modules = {
        digest
        for one in split.old
        for digest in (one.spec.task_module, one.spec.validator_module)
    }
    gone = _delete_contents(connection, modules - split.used)
    table = schema.verdict  # findings quote names of the source
    connection.execute(delete(table).where(table.c.created_at < before))
    published = {one.spec.task_module for one in split.old if one.spec.publish_source}
    return len(gone), tuple(sorted(published & gone))


def _delete_arguments(connection: Connection, split: _Split) -> int:
    arguments = {one.spec.arguments for one in split.old} - split.used
    pairs = [(name, one.account_id) for one in split.old for name in one.spec.blobs]
    gone = _delete_contents(connection, arguments)
    return len(gone) + _delete_blobs(connection, _holders(pairs, split.used))


def _delete_contents(connection: Connection, digests: Iterable[str]) -> set[str]:
    """Delete contents; returns the digests of those that were there."""
    digest = schema.content.c.digest
    gone = {row[0] for row in select_in(connection, [digest], digest, digests)}
    delete_in(connection, digest, gone)
    return gone


def _holders(
    pairs: Iterable[tuple[str, int]], used: frozenset[str]
) -> dict[str, set[int]]:
    holders: dict[str, set[int]] = {}
    for digest, account_id in pairs:
        if digest not in used:
            holders.setdefault(digest, set()).add(account_id)
    return holders


def _delete_blobs(connection: Connection, holders: Mapping[str, set[int]]) -> int:
    """Delete the rows of blobs that no result needs and nobody else has uploaded too.

    Their files go when that is durable.
    """
    grant, value = schema.blob_grant.c, schema.outcome.c.value_blob
    granted = select_in(
        connection, [grant.digest, grant.account_id], grant.digest, holders
    )
    kept = {digest for digest, owner in granted if owner not in holders[digest]}
    kept |= {row[0] for row in select_in(connection, [value], value, holders)}
    free = set(holders) - kept
    delete_in(connection, grant.digest, free)
    return delete_in(connection, schema.blob.c.digest, free)


def _delete_results(connection: Connection, split: _Split) -> int:
    table, count = schema.outcome, 0
    accounts = {one.task_id: one.account_id for one in split.old}
    for part in _chunks(list(accounts), CHUNK):
        chosen = table.c.task_id.in_(part)
        has_value = table.c.value.is_not(None) | table.c.value_blob.is_not(None)
        has_text = (table.c.error_text != "") | (table.c.output != "")
        has_text |= table.c["items"].is_not(None)
        large = select(table.c.value_blob, table.c.task_id).where(
            chosen, table.c.value_blob.is_not(None)
        )
        pairs = [
            (row.value_blob, accounts[row.task_id]) for row in connection.execute(large)
        ]
        emptied = update(table).where(chosen, has_value | has_text)
        count += connection.execute(
            emptied.values(
                value=None, value_blob=None, items=None, error_text="", output=""
            )
        ).rowcount
        _delete_blobs(connection, _holders(pairs, split.used))
    return count


def _delete_salts(
    connection: Connection,
    split: _Split,
    before: int,
    now: int,
    reviewers: Sequence[ReviewerKey],
) -> int:
    """Delete nonces of statements and results, and renew the salts of old accounts."""
    attempt, outcome, count = schema.attempt, schema.outcome, 0
    for part in _chunks([one.task_id for one in split.old], CHUNK):
        chosen = attempt.c.task_id.in_(part) & attempt.c.statement.is_not(None)
        nonces = update(attempt).where(chosen)
        count += connection.execute(
            nonces.values(statement=None, envelope=None)
        ).rowcount
        chosen = outcome.c.task_id.in_(part) & outcome.c.payload.is_not(None)
        payloads = update(outcome).where(chosen).values(payload=None)
        count += connection.execute(payloads).rowcount
    reviews = schema.review
    ended = connection.execute(delete(reviews).where(reviews.c.not_after < before))
    count += ended.rowcount
    return count + _renew_accounts(connection, before, now, reviewers)


def _renew_accounts(
    connection: Connection, before: int, now: int, reviewers: Sequence[ReviewerKey]
) -> int:
    """Give accounts that nobody can use now a new salt: nothing leads to them then.

    Those whose commitments stand in the release beside a reviewer's key keep theirs:
    they say whom he may not review.
    """
    accounts, tokens, tasks = schema.account, schema.token, schema.task
    usable = select(tokens.c.account_id).where(
        tokens.c.revoked_at.is_(None), tokens.c.expires_at > now
    )
    newest = func.coalesce(func.max(func.coalesce(tasks.c.finished_at, before)), 0)
    active = (
        select(tasks.c.account_id).group_by(tasks.c.account_id).having(newest >= before)
    )
    named = {commitment for one in reviewers for commitment in one.accounts}
    found = connection.execute(
        select(accounts.c.id, accounts.c.salt).where(
            accounts.c.created_at < before,
            accounts.c.id.not_in(usable),
            accounts.c.id.not_in(active),
        )
    ).all()
    count = 0
    for row in found:
        if submitter_commitment(row.salt) not in named:
            query = update(accounts).where(accounts.c.id == row.id)
            renewed = query.values(salt=secrets.token_hex(32), created_at=now)
            connection.execute(renewed)
            count += 1
    return count


def _forget_pages(store: Store) -> None:
    if store.engine.dialect.name == "sqlite":
        with store.engine.connect() as connection:
            connection.exec_driver_sql("ROLLBACK")
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")


def _chunks(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]

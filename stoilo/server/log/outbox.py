"""The outbox of the audit log: what happened, written in the transaction of its cause.

Whoever changes something that the log must tell notes an event on the connection that
makes the change; both are durable together or not at all. `stoilo.server.log.leaves` appends
what waits. A key names an event for good, so whatever is repeated after a crash is
noted, and logged, once.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import msgspec
from sqlalchemy import update

from stoilo.audit.format.facts import NamedDigest, OperatorRecord, Record
from stoilo.server.db import schema
from stoilo.server.db.bulk import insert_many, select_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

    from stoilo.audit.format.facts import OperatorAct


NO_ORIGIN: Final = "-"
"""What a noted record has as its origin until the log's writer fills in the project's."""


class EventKind(StrEnum):
    """How an event's record comes about."""

    RECORD = "record"  # noted with the event
    ISSUED = "issued"  # from the attempt's row, once its workunit exists
    WITHDRAWN = "withdrawn"  # from the attempt's row, which will have no workunit
    OUTCOME = "outcome"  # from the outcome's row


@dataclass(frozen=True, slots=True)
class Event:
    """One thing to log."""

    key: str  # names it for good
    kind: EventKind  # how its record comes about
    time: int  # when it happened, s
    record: Record | None = None  # of kind RECORD; its origin is `NO_ORIGIN`


def note_events(connection: Connection, events: Sequence[Event]) -> int:
    """Note events in the caller's transaction; returns how many keys were new."""
    table = schema.event
    unique: dict[str, Event] = {}
    for event in events:
        unique.setdefault(event.key, event)
    known = {
        row.key for row in select_in(connection, [table.c.key], table.c.key, unique)
    }
    fresh = [
        {
            "key": event.key,
            "kind": event.kind.value,
            "record": msgspec.json.encode(event.record) if event.record else None,
            "created_at": event.time,
        }
        for event in unique.values()
        if event.key not in known
    ]
    insert_many(connection, table, fresh)
    return len(fresh)


def note_record(connection: Connection, key: str, record: Record) -> bool:
    """Note one record; False when its key has been noted before."""
    return (
        note_events(connection, [Event(key, EventKind.RECORD, record.time, record)]) > 0
    )


def note_fixed(
    connection: Connection, key: str, data: bytes, leaf: bytes, now: int
) -> None:
    """Note a record whose bytes and leaf are fixed already, once a key."""
    if note_events(connection, [Event(key, EventKind.RECORD, now)]):
        query = update(schema.event).where(schema.event.c.key == key)
        connection.execute(query.values(record=data, leaf=leaf))


def note_act(
    connection: Connection,
    act: OperatorAct,
    now: int,
    *,
    subject: str = "",
    role: str = "",
    task: str = "",
    until: int = 0,
    versions: Mapping[str, str] | None = None,
) -> None:
    """Note an act of the operator; `subject` and `task` are commitments.

    Of a server that starts or stops: by what it works, as name → digest.
    """
    named = sorted((versions or {}).items())
    record = OperatorRecord(
        origin=NO_ORIGIN,
        time=now,
        act=act,
        subject=subject,
        role=role,
        task=task,
        until=until,
        version="" if versions is None else version("stoilo"),
        versions=tuple(NamedDigest(name, value) for name, value in named),
        mark=make_mark(),
    )
    note_record(connection, f"operator:{record.mark}", record)


def workunit_event(task_id: str, number: int, now: int, *, issued: bool) -> Event:
    """Return the event of an admission that got its workunit, or never will."""
    kind = EventKind.ISSUED if issued else EventKind.WITHDRAWN
    return Event(f"workunit:{task_id}_{number}", kind, now)


def read_draft(data: bytes, origin: str) -> Record:
    """Return a noted record with the project's origin in its place."""
    record: Record = msgspec.json.decode(data, type=Record)
    return msgspec.structs.replace(record, origin=origin)


def make_mark() -> str:
    """Return a random mark, which keeps two equal acts of one second apart."""
    return secrets.token_hex(8)

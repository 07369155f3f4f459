"""One outbox for everything that is logged; what is in force.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects import mysql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def exact(chars: int) -> sa.String:
    """Text that compares byte by byte on MariaDB too."""
    binary = mysql.VARCHAR(chars, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(chars).with_variant(binary, "mysql", "mariadb")


def upgrade() -> None:
    """Create the tables, move what waits for the log, drop what it waited in."""
    op.create_table(
        "event",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", exact(160), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("record", sa.LargeBinary(length=16384), nullable=True),
        sa.Column("leaf", sa.LargeBinary(length=1024), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("log_index", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("key"),
        if_not_exists=True,
    )
    op.create_index("event_waiting", "event", ["log_index", "id"], if_not_exists=True)
    op.create_table(
        "standing",
        sa.Column("subject", exact(160), nullable=False),
        sa.Column("record", sa.LargeBinary(length=16384), nullable=False),
        sa.PrimaryKeyConstraint("subject"),
        if_not_exists=True,
    )
    if _has("outcome", "log_index"):
        _move_outcomes()
        op.drop_index("outcome_unlogged", table_name="outcome", if_exists=True)
        _drop("outcome", "logged", "leaf", "log_index")
    if _has("refusal_batch", "log_index"):
        _move_refusals()
        _drop("refusal_batch", "leaf", "log_index")


def _has(table: str, column: str) -> bool:
    """Whether a table still has a column; as SQL is only written, all is as it was."""
    if context.is_offline_mode():
        return True
    found = sa.inspect(op.get_bind()).get_columns(table)
    return column in {one["name"] for one in found}


def _drop(table: str, *columns: str) -> None:
    """Drop the columns that are there; the last one says whether rows are moved."""
    for column in columns:
        if _has(table, column):
            op.drop_column(table, column)


def _event() -> sa.TableClause:
    names = ("key", "kind", "record", "leaf", "created_at", "log_index")
    return sa.table("event", *(sa.column(name) for name in names))


def _text(value: str) -> sa.Cast[str]:
    """Return a text that every dialect can join to others."""
    return sa.cast(sa.literal_column(f"'{value}'"), sa.String(32))


def _moved(key: sa.ColumnElement[str]) -> sa.Exists:
    """Whether a row is in the outbox already: an upgrade may begin again."""
    event = sa.table("event", sa.column("key")).alias("moved")
    return sa.exists().where(event.c.key == key)


def _move_outcomes() -> None:
    """Let the outbox hold the outcomes that were not logged yet."""
    outcome = sa.table(
        "outcome", sa.column("task_id"), sa.column("created_at"), sa.column("log_index")
    )
    key = _text("outcome:") + sa.cast(outcome.c.task_id, sa.String(32))
    kind = _text("outcome")
    waiting = sa.select(key, kind, outcome.c.created_at).where(
        outcome.c.log_index.is_(None), ~_moved(key)
    )
    op.execute(sa.insert(_event()).from_select(["key", "kind", "created_at"], waiting))


def _move_refusals() -> None:
    """Let the outbox hold the closed batches of refusals that were not logged yet."""
    names = ("id", "end", "leaf", "log_index")
    batch = sa.table("refusal_batch", *(sa.column(name) for name in names))
    key = _text("refusals:") + sa.cast(batch.c.id, sa.String(32))
    kind = _text("record")
    waiting = sa.select(key, kind, batch.c.end, batch.c.leaf).where(
        batch.c.log_index.is_(None), ~_moved(key)
    )
    columns = ["key", "kind", "created_at", "leaf"]
    op.execute(sa.insert(_event()).from_select(columns, waiting))

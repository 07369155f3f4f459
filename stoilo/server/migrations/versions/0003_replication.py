"""How copies are spread, which hosts are trusted or banned, and what was checked again.

Revision ID: engine0003
Revises: engine0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "engine0003"
down_revision = "engine0002"
branch_labels = None
depends_on = None


def key() -> sa.types.TypeEngine[int]:
    """Row numbers: SQLite counts by itself only in INTEGER columns."""
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def name() -> sa.types.TypeEngine[str]:
    """Names that compare byte by byte."""
    exact = mysql.VARCHAR(160, charset="ascii", collation="ascii_bin")
    return sa.String(160).with_variant(exact, "mysql", "mariadb")


def upgrade() -> None:
    """Create the tables."""
    _create_workunit_tables()
    _create_host_tables()
    _create_spot_checks()


def _create_workunit_tables() -> None:
    op.create_table(
        "engine_replication",
        sa.Column("workunit_id", key(), nullable=False),
        sa.Column("homogeneous", sa.String(length=8), nullable=False),
        sa.Column("host_class", sa.String(length=64), nullable=False),
        sa.Column("alone", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["workunit_id"], ["engine_workunit.id"]),
        sa.PrimaryKeyConstraint("workunit_id"),
        if_not_exists=True,
    )
    op.create_table(
        "engine_lingering",
        sa.Column("workunit_id", key(), nullable=False),
        sa.ForeignKeyConstraint(["workunit_id"], ["engine_workunit.id"]),
        sa.PrimaryKeyConstraint("workunit_id"),
        if_not_exists=True,
    )


def _create_host_tables() -> None:
    op.create_table(
        "engine_host_history",
        sa.Column("host_id", key(), nullable=False),
        sa.Column("app", sa.String(length=32), nullable=False),
        sa.Column("consecutive_valid", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("host_id", "app"),
        if_not_exists=True,
    )
    op.create_table(
        "engine_trusted_user",
        sa.Column("user_id", key(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["engine_user.id"]),
        sa.PrimaryKeyConstraint("user_id"),
        if_not_exists=True,
    )
    op.create_table(
        "engine_ban",
        sa.Column("host_id", key(), nullable=False),
        sa.Column("host_key", name(), nullable=False),
        sa.Column("workunit_id", key(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("host_id"),
        if_not_exists=True,
    )
    op.create_index("engine_ban_key", "engine_ban", ["host_key"], if_not_exists=True)


def _create_spot_checks() -> None:
    table = "engine_spot_check"
    op.create_table(
        table,
        sa.Column("copy_id", key(), nullable=False),
        sa.Column("workunit_id", key(), nullable=False),
        sa.Column("verdict", sa.String(length=16), nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["copy_id"], ["engine_result.id"]),
        sa.ForeignKeyConstraint(["workunit_id"], ["engine_workunit.id"]),
        sa.PrimaryKeyConstraint("copy_id"),
        if_not_exists=True,
    )
    op.create_index(
        "engine_spot_check_workunit", table, ["workunit_id"], if_not_exists=True
    )
    op.create_index("engine_spot_check_ended", table, ["ended_at"], if_not_exists=True)

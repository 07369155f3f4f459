"""New keys of accounts; resumed runs and their excuses; accounts that turn work away.

Revision ID: engine0009
Revises: engine0007
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "engine0009"
down_revision = "engine0007"
branch_labels = None
depends_on = None


def key() -> sa.types.TypeEngine[int]:
    """Row numbers: SQLite counts by itself only in INTEGER columns."""
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables."""
    _create_account_tables()
    _create_resumption_tables()
    op.create_index("engine_host_cpid", "engine_host", ["cpid"], if_not_exists=True)


def _create_account_tables() -> None:
    op.create_table(
        "engine_key_change",
        sa.Column("user_id", key(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["engine_user.id"]),
        sa.PrimaryKeyConstraint("user_id"),
        if_not_exists=True,
    )
    op.create_table(
        "engine_account_standing",
        sa.Column("user_id", key(), nullable=False),
        sa.Column("turned_away", sa.Integer(), nullable=False),
        sa.Column("paused_until", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["engine_user.id"]),
        sa.PrimaryKeyConstraint("user_id"),
        if_not_exists=True,
    )


def _create_resumption_tables() -> None:
    op.create_table(
        "engine_resumption",
        sa.Column("copy_id", key(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["copy_id"], ["engine_result.id"]),
        sa.PrimaryKeyConstraint("copy_id"),
        if_not_exists=True,
    )
    op.create_table(
        "engine_excuse",
        sa.Column("host_id", key(), nullable=False),
        sa.Column("workunit_id", key(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("host_id", "workunit_id"),
        if_not_exists=True,
    )

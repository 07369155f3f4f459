"""People and their computers: preferences, host records, credit, quotas.

Revision ID: engine0005
Revises: engine0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "engine0005"
down_revision = "engine0004"
branch_labels = None
depends_on = None


def key() -> sa.types.TypeEngine[int]:
    """Row numbers: SQLite counts by itself only in INTEGER columns."""
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def whole(name: str) -> sa.Column[int]:
    """Return a column of 64-bit numbers."""
    return sa.Column(name, sa.BigInteger(), nullable=False)


def small(name: str) -> sa.Column[int]:
    """Return a column of ordinary numbers."""
    return sa.Column(name, sa.Integer(), nullable=False)


def precise(name: str) -> sa.Column[float]:
    """Return a column of fractions that sums do not wear down."""
    return sa.Column(name, sa.Double(), nullable=False)


def text(name: str, chars: int) -> sa.Column[str]:
    """Return a column of text."""
    return sa.Column(name, sa.String(length=chars), nullable=False)


def upgrade() -> None:
    """Create the tables."""
    _people()
    _hosts()
    op.create_table(
        "engine_credit",
        sa.Column("copy_id", key(), autoincrement=False, nullable=False),
        sa.Column("user_id", key(), nullable=False),
        sa.Column("host_id", key(), nullable=False),
        precise("granted"),
        whole("granted_at"),
        sa.PrimaryKeyConstraint("copy_id"),
        if_not_exists=True,
    )


def _people() -> None:
    """Create what belongs to a user."""
    op.create_table(
        "engine_person",
        sa.Column("user_id", key(), nullable=False),
        text("name", 60),
        text("export_id", 32),
        small("exported"),
        text("venue", 16),
        whole("banned_at"),
        precise("total_credit"),
        precise("average_credit"),
        whole("average_at"),
        sa.ForeignKeyConstraint(["user_id"], ["engine_user.id"]),
        sa.PrimaryKeyConstraint("user_id"),
        if_not_exists=True,
    )
    op.create_table(
        "engine_preference",
        sa.Column("user_id", key(), nullable=False),
        text("levels", 64),
        small("require_review"),
        small("require_public_source"),
        text("topics", 2200),
        whole("modified_at"),
        sa.ForeignKeyConstraint(["user_id"], ["engine_user.id"]),
        sa.PrimaryKeyConstraint("user_id"),
        if_not_exists=True,
    )
    op.create_table(
        "engine_global_preference",
        sa.Column("user_id", key(), nullable=False),
        whole("modified_at"),
        text("document", 4000),
        sa.ForeignKeyConstraint(["user_id"], ["engine_user.id"]),
        sa.PrimaryKeyConstraint("user_id"),
        if_not_exists=True,
    )


def _hosts() -> None:
    """Create what belongs to a host."""
    names = ("domain_name", "vendor", "model", "os_name", "os_version")
    op.create_table(
        "engine_host_record",
        sa.Column("host_id", key(), nullable=False),
        *(text(name, 128) for name in names),
        text("platform", 64),
        text("client", 32),
        small("ncpus"),
        precise("fpops"),
        precise("memory_bytes"),
        precise("disk_free_bytes"),
        whole("stored_at"),
        precise("total_credit"),
        precise("average_credit"),
        whole("average_at"),
        sa.ForeignKeyConstraint(["host_id"], ["engine_host.id"]),
        sa.PrimaryKeyConstraint("host_id"),
        if_not_exists=True,
    )
    op.create_table(
        "engine_quota",
        sa.Column("host_id", key(), nullable=False),
        sa.Column("app", sa.String(length=32), nullable=False),
        small("per_cpu"),
        small("day"),
        small("issued"),
        small("errors_in_row"),
        whole("paused_until"),
        sa.ForeignKeyConstraint(["host_id"], ["engine_host.id"]),
        sa.PrimaryKeyConstraint("host_id", "app"),
        if_not_exists=True,
    )

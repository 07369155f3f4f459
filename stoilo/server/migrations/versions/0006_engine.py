"""What copies need and took, and which host keeps which files.

Revision ID: engine0006
Revises: engine0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "engine0006"
down_revision = "engine0005"
branch_labels = None
depends_on = None


def key() -> sa.types.TypeEngine[int]:
    """Row numbers: SQLite counts by itself only in INTEGER columns."""
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def real() -> sa.types.TypeEngine[float]:
    """Floating point of 53 bits."""
    return sa.Float().with_variant(mysql.DOUBLE(asdecimal=False), "mysql", "mariadb")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "engine_bound",
        sa.Column("workunit_id", key(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("disk_bytes", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["workunit_id"], ["engine_workunit.id"]),
        sa.PrimaryKeyConstraint("workunit_id"),
        if_not_exists=True,
    )
    op.create_table(
        "engine_usage",
        sa.Column("copy_id", key(), nullable=False),
        sa.Column("cpu_s", real(), nullable=False),
        sa.Column("flops", real(), nullable=False),
        sa.ForeignKeyConstraint(["copy_id"], ["engine_result.id"]),
        sa.PrimaryKeyConstraint("copy_id"),
        if_not_exists=True,
    )
    op.create_table(
        "engine_lease",
        sa.Column("host_id", key(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("lent_at", sa.BigInteger(), nullable=False),
        sa.Column("needed_until", sa.BigInteger(), nullable=False),
        sa.Column("held", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["host_id"], ["engine_host.id"]),
        sa.PrimaryKeyConstraint("host_id", "digest"),
        if_not_exists=True,
    )

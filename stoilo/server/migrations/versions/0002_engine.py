"""What tasks are besides their level, and what hosts ask not to be sent.

Revision ID: engine0002
Revises: engine0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "engine0002"
down_revision = "engine0001"
branch_labels = None
depends_on = None


def key() -> sa.types.TypeEngine[int]:
    """Row numbers: SQLite counts by itself only in INTEGER columns."""
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "engine_offer",
        sa.Column("workunit_id", key(), nullable=False),
        sa.Column("reviewed", sa.Integer(), nullable=False),
        sa.Column("public_source", sa.Integer(), nullable=False),
        sa.Column("topics", sa.String(length=640), nullable=False),
        sa.ForeignKeyConstraint(["workunit_id"], ["engine_workunit.id"]),
        sa.PrimaryKeyConstraint("workunit_id"),
        if_not_exists=True,
    )
    op.create_table(
        "engine_wish",
        sa.Column("host_id", key(), nullable=False),
        sa.Column("max_level", sa.String(length=32), nullable=False),
        sa.Column("require_review", sa.Integer(), nullable=False),
        sa.Column("require_public_source", sa.Integer(), nullable=False),
        sa.Column("topics", sa.String(length=2200), nullable=False),
        sa.ForeignKeyConstraint(["host_id"], ["engine_host.id"]),
        sa.PrimaryKeyConstraint("host_id"),
        if_not_exists=True,
    )

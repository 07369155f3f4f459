"""Which bytes of a result were judged; which questions BOINC has put again.

Revision ID: stock0002
Revises: stock0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "stock0002"
down_revision = "stock0001"
branch_labels = None
depends_on = None


def key() -> sa.types.TypeEngine[int]:
    """Row numbers: SQLite counts by itself only in INTEGER columns."""
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def name() -> sa.String:
    """Text that compares byte by byte on MariaDB too."""
    binary = mysql.VARCHAR(160, charset="ascii", collation="ascii_bin")
    return sa.String(160).with_variant(binary, "mysql", "mariadb")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "stoilo_asked",
        sa.Column("workunit_id", key(), nullable=False),
        sa.Column("asked_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["workunit_id"], ["stoilo_workunit.id"]),
        sa.PrimaryKeyConstraint("workunit_id"),
        if_not_exists=True,
    )
    op.create_table(
        "stoilo_judged",
        sa.Column("result", name(), nullable=False),
        sa.Column("workunit_id", key(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("judged_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["workunit_id"], ["stoilo_workunit.id"]),
        sa.PrimaryKeyConstraint("result"),
        if_not_exists=True,
    )
    op.create_index(
        "stoilo_judged_workunit",
        "stoilo_judged",
        ["workunit_id"],
        unique=False,
        if_not_exists=True,
    )

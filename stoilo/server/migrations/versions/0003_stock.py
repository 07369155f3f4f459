"""Last moments of issue in the order in which they come; open workunits by release.

Revision ID: stock0003
Revises: stock0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "stock0003"
down_revision = "stock0002"
branch_labels = None
depends_on = None

_FILL = (
    "INSERT INTO stoilo_issuing (workunit_id, last_at)"
    " SELECT id, not_after - delay_bound_s FROM stoilo_workunit"
    " WHERE outcome IS NULL AND frozen = 0"
    " AND id NOT IN (SELECT workunit_id FROM stoilo_issuing)"
)


def key() -> sa.types.TypeEngine[int]:
    """Row numbers: SQLite counts by itself only in INTEGER columns."""
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the table, fill it, and replace the index."""
    op.create_table(
        "stoilo_issuing",
        sa.Column("workunit_id", key(), nullable=False),
        sa.Column("last_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["workunit_id"], ["stoilo_workunit.id"]),
        sa.PrimaryKeyConstraint("workunit_id"),
        if_not_exists=True,
    )
    indexes = (
        ("stoilo_issuing_last", "stoilo_issuing", ["last_at"]),
        ("stoilo_workunit_release", "stoilo_workunit", ["outcome", "release_file"]),
        ("stoilo_workunit_state", "stoilo_workunit", ["outcome", "frozen"]),
    )
    for name, table, columns in indexes:
        op.create_index(name, table, columns, unique=False, if_not_exists=True)
    op.execute(_FILL)
    op.drop_index("stoilo_workunit_open", table_name="stoilo_workunit", if_exists=True)

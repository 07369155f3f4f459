"""What runs of each source and level took.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    samples = sa.LargeBinary(length=1024)
    samples = samples.with_variant(mysql.BLOB(), "mysql", "mariadb")
    op.create_table(
        "measurement",
        sa.Column("subject", sa.String(length=64), nullable=False),
        sa.Column("samples", samples, nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("subject"),
        if_not_exists=True,
    )
    op.create_index(
        "measurement_age",
        "measurement",
        ["updated_at"],
        unique=False,
        if_not_exists=True,
    )

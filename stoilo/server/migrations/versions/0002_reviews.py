"""Reviewers' signatures.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "review",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("account_id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("task_module", sa.String(length=64), nullable=False),
        sa.Column("envelope", sa.LargeBinary(length=16384), nullable=False),
        sa.Column("not_after", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("digest"),
        if_not_exists=True,
    )
    op.create_index(
        "review_of",
        "review",
        ["task_module", "not_after"],
        unique=False,
        if_not_exists=True,
    )

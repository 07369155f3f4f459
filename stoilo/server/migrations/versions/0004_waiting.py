"""Attempts by state and age: the oldest that wait are found without reading the others.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Replace the index."""
    op.create_index(
        "attempt_waiting", "attempt", ["state", "created_at"], if_not_exists=True
    )
    op.drop_index("attempt_state", table_name="attempt", if_exists=True)

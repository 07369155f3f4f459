"""Copies by the order in which they are handed out.

Revision ID: engine0007
Revises: engine0006
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "engine0007"
down_revision = "engine0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Replace the index."""
    op.create_index(
        "engine_result_offer",
        "engine_result",
        ["state", sa.text("priority DESC"), "id"],
        unique=False,
        if_not_exists=True,
    )
    op.drop_index("engine_result_dispatch", table_name="engine_result", if_exists=True)

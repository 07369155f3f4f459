"""When an account has left the project."""

from __future__ import annotations

from alembic import context, op

from stoilo.server.migrations import add_columns

revision = "engine0003"
down_revision = "engine0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add what is not there."""
    models = context.config.attributes["branch"].models
    add_columns(op.get_bind(), models.tables["engine_user"], "left_at")

"""What is kept of passkeys, and what trainers say of their trainings."""

from __future__ import annotations

from alembic import context, op

from stoilo.server.migrations import create_models

revision = "server0003"
down_revision = "server0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add what is not there."""
    create_models(op.get_bind(), context.config.attributes["branch"].models)

"""Groups of accounts, names of tokens, and what an operator allows of each."""

from __future__ import annotations

from alembic import context, op

from stoilo.server.migrations import add_columns, create_models

revision = "server0002"
down_revision = "server0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add what is not there."""
    models = context.config.attributes["branch"].models
    add_columns(op.get_bind(), models.tables["account"], "group_name")
    add_columns(op.get_bind(), models.tables["token"], "name")
    create_models(op.get_bind(), models)

"""All tables of the branch `server`, as the models had them at the first release."""

from __future__ import annotations

from alembic import context, op

from stoilo.server.migrations import create_models

revision = "server0001"
down_revision = None
branch_labels = ("server",)
depends_on = None


def upgrade() -> None:
    """Create what is not there."""
    create_models(op.get_bind(), context.config.attributes["branch"].models)

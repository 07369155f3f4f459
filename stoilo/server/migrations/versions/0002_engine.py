"""The rank of a result: fair turns of shares instead of age alone."""

from __future__ import annotations

from alembic import context, op

from stoilo.server.migrations import add_columns, create_models

revision = "engine0002"
down_revision = "engine0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add what is not there, and drop the index of the order of before."""
    models, bind = context.config.attributes["branch"].models, op.get_bind()
    add_columns(bind, models.tables["engine_result"], "rank")
    create_models(bind, models)
    of = "" if bind.dialect.name == "sqlite" else " ON engine_result"
    op.execute(f"DROP INDEX IF EXISTS engine_result_offer{of}")

"""Alembic environment: `stoilo.server.migrations` says which database and branch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alembic import context

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from stoilo.server.migrations import Branch


def run(connection: Connection, branch: Branch) -> None:
    """Run the migrations on the connection that the caller opened for writing."""
    context.configure(
        connection=connection,
        target_metadata=branch.models,
        version_table=branch.version_table,
    )
    with context.begin_transaction():
        context.run_migrations()


run(context.config.attributes["connection"], context.config.attributes["branch"])

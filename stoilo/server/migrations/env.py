"""Alembic environment: `stoilo.server.migrations` says which database and branch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alembic import context

from stoilo.server.store import open_engine

if TYPE_CHECKING:
    from stoilo.server.migrations import Branch


def run(url: str, branch: Branch) -> None:
    """Run the migrations on the database that the caller named."""
    engine = open_engine(url)
    try:
        with engine.connect() as plain:
            connection = plain.execution_options(stoilo_write=True)
            context.configure(
                connection=connection,
                target_metadata=branch.models,
                version_table=branch.version_table,
            )
            with context.begin_transaction():
                context.run_migrations()
            connection.commit()
    finally:
        engine.dispose()


def render(dialect: str, branch: Branch) -> None:
    """Write the migrations as SQL."""
    context.configure(
        dialect_name=dialect,
        target_metadata=branch.models,
        version_table=branch.version_table,
    )
    with context.begin_transaction():
        context.run_migrations()


attributes = context.config.attributes
if context.is_offline_mode():
    render(attributes["dialect"], attributes["branch"])
else:
    run(attributes["url"], attributes["branch"])

"""Alembic environment: `stoilo.server.migrations` says which database and branch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alembic import context

from stoilo.server.db.store import begin_writing, open_engine

if TYPE_CHECKING:
    from stoilo.server.migrations import Branch


def run(url: str, branch: Branch) -> None:
    """Run the migrations on the database that the caller named."""
    engine = open_engine(url)
    try:
        with begin_writing(engine, branch) as connection:
            context.configure(
                connection=connection,
                target_metadata=branch.models,
                version_table=branch.version_table,
            )
            with context.begin_transaction():
                context.run_migrations()
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

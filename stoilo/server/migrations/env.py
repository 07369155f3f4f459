"""Alembic environment: the URL comes from `stoilo.server.store.upgrade_schema`."""

from __future__ import annotations

from alembic import context

from stoilo.server.schema import METADATA
from stoilo.server.store import open_engine


def run() -> None:
    """Run the migrations on the database that the caller named."""
    engine = open_engine(context.config.attributes["url"])
    with engine.connect() as plain:
        connection = plain.execution_options(stoilo_write=True)
        context.configure(connection=connection, target_metadata=METADATA)
        with context.begin_transaction():
            context.run_migrations()
        connection.commit()
    engine.dispose()


run()

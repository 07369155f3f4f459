"""Alembic history of the server's and the embedded engine's tables."""

"""What stock BOINC clients run, and the key that they check it with.

Revision ID: engine0004
Revises: engine0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "engine0004"
down_revision = "engine0003"
branch_labels = None
depends_on = None


def name() -> sa.String:
    """Text that compares byte by byte on MariaDB too."""
    binary = mysql.VARCHAR(160, charset="ascii", collation="ascii_bin")
    return sa.String(160).with_variant(binary, "mysql", "mariadb")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "engine_program",
        sa.Column("version_num", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("platform", name(), nullable=False),
        sa.Column("launcher", sa.String(length=64), nullable=False),
        sa.Column("launcher_signature", sa.String(length=512), nullable=False),
        sa.Column("verifier", sa.String(length=64), nullable=False),
        sa.Column("verifier_signature", sa.String(length=512), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("replaced_at", sa.BigInteger(), nullable=False),
        sa.Column("served", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("version_num"),
        if_not_exists=True,
    )
    op.create_table(
        "engine_code_sign_key",
        sa.Column("place", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("text", sa.String(length=1024), nullable=False),
        sa.Column("signature", sa.String(length=512), nullable=False),
        sa.PrimaryKeyConstraint("place"),
        if_not_exists=True,
    )

"""First tables of the embedded engine.

Databases of the first days have these tables and no version: they are taken as they are.

Revision ID: engine0001
Revises:
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "engine0001"
down_revision = None
branch_labels = ("engine",)
depends_on = None


def key() -> sa.types.TypeEngine[int]:
    """Row numbers: SQLite counts by itself only in INTEGER columns."""
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def name() -> sa.String:
    """Text that compares byte by byte on MariaDB too."""
    binary = mysql.VARCHAR(160, charset="ascii", collation="ascii_bin")
    return sa.String(160).with_variant(binary, "mysql", "mariadb")


def inline() -> sa.types.TypeEngine[bytes]:
    """Small files."""
    return sa.LargeBinary(65536).with_variant(mysql.MEDIUMBLOB(), "mysql", "mariadb")


def real() -> sa.types.TypeEngine[float]:
    """Floating point of 53 bits."""
    return sa.Float().with_variant(mysql.DOUBLE(asdecimal=False), "mysql", "mariadb")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "engine_file",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("token", sa.String(length=64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("md5", sa.String(length=32), nullable=False),
        sa.Column("content", inline(), nullable=True),
        sa.PrimaryKeyConstraint("digest"),
        sa.UniqueConstraint("token"),
        if_not_exists=True,
    )
    op.create_table(
        "engine_setting",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("value", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("name"),
        if_not_exists=True,
    )
    op.create_table(
        "engine_user",
        sa.Column("id", key(), nullable=False),
        sa.Column("email", sa.String(length=254), nullable=False),
        sa.Column("key_hash", sa.String(length=64), nullable=False),
        sa.Column("weak_key_hash", sa.String(length=64), nullable=False),
        sa.Column("password_salt", sa.String(length=32), nullable=False),
        sa.Column("password_hash", sa.String(length=128), nullable=False),
        sa.Column("max_level", sa.String(length=32), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("email"),
        sa.UniqueConstraint("key_hash"),
        sa.UniqueConstraint("weak_key_hash"),
        if_not_exists=True,
    )
    op.create_table(
        "engine_workunit",
        sa.Column("id", key(), nullable=False),
        sa.Column("name", name(), nullable=False),
        sa.Column("app", sa.String(length=32), nullable=False),
        sa.Column("min_quorum", sa.Integer(), nullable=False),
        sa.Column("target_results", sa.Integer(), nullable=False),
        sa.Column("max_error", sa.Integer(), nullable=False),
        sa.Column("max_total", sa.Integer(), nullable=False),
        sa.Column("max_success", sa.Integer(), nullable=False),
        sa.Column("delay_bound_s", sa.Integer(), nullable=False),
        sa.Column("not_after", sa.BigInteger(), nullable=False),
        sa.Column("result_max_bytes", sa.BigInteger(), nullable=False),
        sa.Column("fpops_est", real(), nullable=False),
        sa.Column("fpops_bound", real(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("transition_at", sa.BigInteger(), nullable=False),
        sa.Column("outcome", sa.String(length=32), nullable=True),
        sa.Column("canonical", name(), nullable=True),
        sa.Column("code", sa.String(length=16), nullable=False),
        sa.Column("message", sa.String(length=500), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
        if_not_exists=True,
    )
    op.create_index(
        "engine_workunit_transition",
        "engine_workunit",
        ["outcome", "transition_at"],
        unique=False,
        if_not_exists=True,
    )
    op.create_table(
        "engine_host",
        sa.Column("id", key(), nullable=False),
        sa.Column("user_id", key(), nullable=False),
        sa.Column("cpid", name(), nullable=False),
        sa.Column("rpc_seqno", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["engine_user.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("user_id", "cpid"),
        if_not_exists=True,
    )
    op.create_table(
        "engine_outbox",
        sa.Column("workunit_id", key(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("retry_at", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["workunit_id"], ["engine_workunit.id"]),
        sa.PrimaryKeyConstraint("workunit_id"),
        if_not_exists=True,
    )
    op.create_index(
        "engine_outbox_retry",
        "engine_outbox",
        ["retry_at"],
        unique=False,
        if_not_exists=True,
    )
    op.create_table(
        "engine_result",
        sa.Column("id", key(), nullable=False),
        sa.Column("name", name(), nullable=False),
        sa.Column("workunit_id", key(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("validity", sa.String(length=16), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("user_id", key(), nullable=False),
        sa.Column("host_id", key(), nullable=False),
        sa.Column("host_key", name(), nullable=False),
        sa.Column("sent_at", sa.BigInteger(), nullable=False),
        sa.Column("deadline", sa.BigInteger(), nullable=False),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.Column("code", sa.String(length=16), nullable=False),
        sa.Column("upload_name", name(), nullable=False),
        sa.Column("upload_token", sa.String(length=64), nullable=False),
        sa.Column("upload_size", sa.BigInteger(), nullable=True),
        sa.Column("upload_digest", sa.String(length=64), nullable=True),
        sa.ForeignKeyConstraint(["workunit_id"], ["engine_workunit.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
        sa.UniqueConstraint("upload_name"),
        sa.UniqueConstraint("upload_token"),
        if_not_exists=True,
    )
    op.create_index(
        "engine_result_dispatch",
        "engine_result",
        ["state", "priority", "id"],
        unique=False,
        if_not_exists=True,
    )
    op.create_index(
        "engine_result_host",
        "engine_result",
        ["host_id", "state"],
        unique=False,
        if_not_exists=True,
    )
    op.create_index(
        "engine_result_workunit",
        "engine_result",
        ["workunit_id", "user_id"],
        unique=False,
        if_not_exists=True,
    )
    op.create_table(
        "engine_workunit_file",
        sa.Column("workunit_id", key(), nullable=False),
        sa.Column("open_name", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("sticky", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["digest"], ["engine_file.digest"]),
        sa.ForeignKeyConstraint(["workunit_id"], ["engine_workunit.id"]),
        sa.PrimaryKeyConstraint("workunit_id", "open_name"),
        if_not_exists=True,
    )
    op.create_index(
        "engine_workunit_file_digest",
        "engine_workunit_file",
        ["digest"],
        unique=False,
        if_not_exists=True,
    )


def downgrade() -> None:
    """Drop the tables."""
    op.drop_index("engine_workunit_file_digest", table_name="engine_workunit_file")
    op.drop_table("engine_workunit_file")
    op.drop_index("engine_result_workunit", table_name="engine_result")
    op.drop_index("engine_result_host", table_name="engine_result")
    op.drop_index("engine_result_dispatch", table_name="engine_result")
    op.drop_table("engine_result")
    op.drop_index("engine_outbox_retry", table_name="engine_outbox")
    op.drop_table("engine_outbox")
    op.drop_table("engine_host")
    op.drop_index("engine_workunit_transition", table_name="engine_workunit")
    op.drop_table("engine_workunit")
    op.drop_table("engine_user")
    op.drop_table("engine_setting")
    op.drop_table("engine_file")

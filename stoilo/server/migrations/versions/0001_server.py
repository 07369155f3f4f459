"""First tables of the server.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision = None
branch_labels = ("server",)
depends_on = None


def exact(chars: int) -> sa.String:
    """Text that compares byte by byte on MariaDB too."""
    binary = mysql.VARCHAR(chars, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(chars).with_variant(binary, "mysql", "mariadb")


def medium() -> sa.types.TypeEngine[bytes]:
    """Up to 16 MiB."""
    plain = sa.LargeBinary(length=16777215)
    return plain.with_variant(mysql.MEDIUMBLOB(), "mysql", "mariadb")


def long() -> sa.types.TypeEngine[bytes]:
    """Up to 4 GiB."""
    plain = sa.LargeBinary(length=4294967295)
    return plain.with_variant(mysql.LONGBLOB(), "mysql", "mariadb")


def text() -> sa.types.TypeEngine[str]:
    """Text beyond 64 KiB."""
    return sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "account",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column(
            "name",
            exact(128),
            nullable=False,
        ),
        sa.Column("salt", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
        if_not_exists=True,
    )
    op.create_table(
        "blob",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("types", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
        if_not_exists=True,
    )
    op.create_table(
        "content",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("data", medium(), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
        if_not_exists=True,
    )
    op.create_table(
        "verdict",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("body", medium(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
        if_not_exists=True,
    )
    op.create_table(
        "blob_grant",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("account_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"]),
        sa.ForeignKeyConstraint(["digest"], ["blob.digest"]),
        sa.PrimaryKeyConstraint("digest", "account_id"),
        if_not_exists=True,
    )
    op.create_table(
        "refusal_batch",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("account_id", sa.Integer(), nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=False),
        sa.Column("end", sa.BigInteger(), nullable=False),
        sa.Column("leaf", sa.LargeBinary(length=1024), nullable=False),
        sa.Column("log_index", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"]),
        sa.PrimaryKeyConstraint("id"),
        if_not_exists=True,
    )
    op.create_table(
        "task",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("account_id", sa.Integer(), nullable=False),
        sa.Column(
            "idempotency_key",
            exact(64),
            nullable=False,
        ),
        sa.Column("request_digest", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("level", sa.String(length=32), nullable=False),
        sa.Column("map_items", sa.Integer(), nullable=False),
        sa.Column("spec", text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("account_id", "idempotency_key", name="task_key"),
        if_not_exists=True,
    )
    op.create_index(
        "task_open", "task", ["account_id", "state"], unique=False, if_not_exists=True
    )
    op.create_table(
        "token",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("account_id", sa.Integer(), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("scope", sa.String(length=128), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("digest"),
        if_not_exists=True,
    )
    op.create_table(
        "attempt",
        sa.Column("task_id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("policy_digest", sa.String(length=64), nullable=False),
        sa.Column("admitted_at", sa.BigInteger(), nullable=True),
        sa.Column("not_after", sa.BigInteger(), nullable=True),
        sa.Column("statement", medium(), nullable=True),
        sa.Column("leaf", sa.LargeBinary(length=1024), nullable=True),
        sa.Column("log_index", sa.BigInteger(), nullable=True),
        sa.Column("proof", medium(), nullable=True),
        sa.Column("envelope", medium(), nullable=True),
        sa.Column("last_code", sa.String(length=16), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["task.id"]),
        sa.PrimaryKeyConstraint("task_id", "number"),
        if_not_exists=True,
    )
    op.create_index(
        "attempt_state", "attempt", ["state"], unique=False, if_not_exists=True
    )
    op.create_table(
        "outcome",
        sa.Column("task_id", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("value", medium(), nullable=True),
        sa.Column("value_blob", sa.String(length=64), nullable=True),
        sa.Column("error_type", sa.String(length=256), nullable=False),
        sa.Column("error_text", text(), nullable=False),
        sa.Column("code", sa.String(length=16), nullable=False),
        sa.Column("output", text(), nullable=False),
        sa.Column("items", long(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("payload", medium(), nullable=True),
        sa.Column("leaf", sa.LargeBinary(length=1024), nullable=True),
        sa.Column("log_index", sa.BigInteger(), nullable=True),
        sa.Column("logged", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["task.id"]),
        sa.PrimaryKeyConstraint("task_id"),
        if_not_exists=True,
    )
    op.create_index(
        "outcome_unlogged", "outcome", ["logged"], unique=False, if_not_exists=True
    )
    op.create_table(
        "refusal",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("account_id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("code", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("batch_id", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"]),
        sa.ForeignKeyConstraint(["batch_id"], ["refusal_batch.id"]),
        sa.PrimaryKeyConstraint("id"),
        if_not_exists=True,
    )
    op.create_index(
        "refusal_batch_of", "refusal", ["batch_id"], unique=False, if_not_exists=True
    )


def downgrade() -> None:
    """Drop the tables."""
    op.drop_index("refusal_batch_of", table_name="refusal")
    op.drop_table("refusal")
    op.drop_index("outcome_unlogged", table_name="outcome")
    op.drop_table("outcome")
    op.drop_index("attempt_state", table_name="attempt")
    op.drop_table("attempt")
    op.drop_table("token")
    op.drop_index("task_open", table_name="task")
    op.drop_table("task")
    op.drop_table("refusal_batch")
    op.drop_table("blob_grant")
    op.drop_table("verdict")
    op.drop_table("content")
    op.drop_table("blob")
    op.drop_table("account")

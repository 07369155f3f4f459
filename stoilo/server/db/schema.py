"""The server's tables: the same models on SQLite and on MariaDB.

Times are whole seconds since 1970 (UTC) unless the name says ``_ms``. Digests are 64 hex
digits. JSON columns hold our own msgspec structs, never a client's text.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.dialects import mysql

METADATA = MetaData()


def exact(chars: int) -> String:
    """Return text that compares byte by byte, also where MariaDB would fold case."""
    binary = mysql.VARCHAR(chars, charset="utf8mb4", collation="utf8mb4_bin")
    return String(chars).with_variant(binary, "mysql", "mariadb")


# MariaDB's plain kinds end at 64 KiB; longer values have kinds of their own.
MEDIUM = 2**24 - 1
Medium = LargeBinary(MEDIUM).with_variant(mysql.MEDIUMBLOB(), "mysql", "mariadb")
Long = LargeBinary(2**32 - 1).with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
LongText = Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")

account = Table(
    "account",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("name", exact(128), nullable=False, unique=True),
    Column("salt", String(64), nullable=False),
    Column("created_at", BigInteger, nullable=False),  # or when its salt was renewed
    Column("group_name", exact(64), nullable=False, server_default=""),  # empty: none
)
Index("account_group", account.c.group_name)

token = Table(
    "token",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("account_id", Integer, ForeignKey("account.id"), nullable=False),
    Column("role", String(16), nullable=False),
    Column("scope", String(128), nullable=False),
    Column("digest", String(64), nullable=False, unique=True),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("revoked_at", BigInteger),
    Column("name", exact(64), nullable=False, server_default=""),  # its holder's word
)

passkey = (
    Table(  # what is kept of one beside its token, which says whose it is, till when
        "passkey",
        METADATA,
        Column("token_id", Integer, ForeignKey("token.id"), primary_key=True),
        Column(
            "credential", LargeBinary(2048), nullable=False
        ),  # WebAuthn's, with its key
        Column("sign_count", BigInteger, nullable=False),
        Column("used_at", BigInteger, nullable=False),  # 0: never
    )
)

allowance = (
    Table(  # what an operator allows less of than the policy; NULL: as that says
        "allowance",
        METADATA,
        Column("kind", String(8), primary_key=True),  # ``account`` or ``group``
        Column("name", exact(128), primary_key=True),
        Column("open_tasks", BigInteger),
        Column("tasks_per_day", BigInteger),
        Column("blob_bytes", BigInteger),
        Column("share", Integer),  # NULL: 1
    )
)

suspension = Table(  # accounts that may not submit, until it is taken back
    "suspension",
    METADATA,
    Column("account_id", Integer, ForeignKey("account.id"), primary_key=True),
    Column("since", BigInteger, nullable=False),
    Column("reason", String(300), nullable=False),
)

content = Table(
    "content",
    METADATA,
    Column("digest", String(64), primary_key=True),
    Column("data", Medium, nullable=False),
)

blob = Table(
    "blob",
    METADATA,
    Column("digest", String(64), primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("types", Text, nullable=False),  # library types in the value, by comma
    Column("created_at", BigInteger, nullable=False),
)

blob_grant = Table(
    "blob_grant",
    METADATA,
    Column("digest", String(64), ForeignKey("blob.digest"), primary_key=True),
    Column("account_id", Integer, ForeignKey("account.id"), primary_key=True),
)

task = Table(
    "task",
    METADATA,
    Column("id", String(32), primary_key=True),
    Column("account_id", Integer, ForeignKey("account.id"), nullable=False),
    Column("idempotency_key", exact(64), nullable=False),
    Column("request_digest", String(64), nullable=False),
    Column("state", String(16), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("level", String(32), nullable=False),
    Column("map_items", Integer, nullable=False),
    Column("spec", LongText, nullable=False),  # records.TaskSpec as JSON
    Column("created_at", BigInteger, nullable=False),
    Column("finished_at", BigInteger),
    UniqueConstraint("account_id", "idempotency_key", name="task_key"),
)
Index("task_open", task.c.account_id, task.c.state)
Index("task_newest", task.c.account_id, task.c.created_at)

attempt = Table(
    "attempt",
    METADATA,
    Column("task_id", String(32), ForeignKey("task.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("state", String(16), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("policy_digest", String(64), nullable=False, default=""),
    Column("admitted_at", BigInteger),
    Column("not_after", BigInteger),
    Column("statement", Medium),
    Column("leaf", LargeBinary(1024)),
    Column("log_index", BigInteger),
    Column("proof", Medium),
    Column("envelope", Medium),
    Column("last_code", String(16), nullable=False, default=""),
)
Index("attempt_waiting", attempt.c.state, attempt.c.created_at)

hold = Table(  # attempts that the engine refused, left alone until then
    "hold",
    METADATA,
    Column("task_id", String(32), ForeignKey("task.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("until", BigInteger, nullable=False),
    Column("reason", String(300), nullable=False),
)

outcome = Table(
    "outcome",
    METADATA,
    Column("task_id", String(32), ForeignKey("task.id"), primary_key=True),
    Column("state", String(16), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("value", Medium),
    Column("value_blob", String(64)),
    Column("error_type", String(256), nullable=False, default=""),
    Column("error_text", LongText, nullable=False, default=""),
    Column("code", String(16), nullable=False, default=""),
    Column("output", LongText, nullable=False, default=""),
    Column("items", Long),  # records.ItemResult list, msgpack
    Column("created_at", BigInteger, nullable=False),
    Column("payload", Medium),
)

verdict = Table(
    "verdict",
    METADATA,
    Column("key", String(64), primary_key=True),
    Column("body", Medium, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)

review = Table(
    "review",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("account_id", Integer, ForeignKey("account.id"), nullable=False),
    Column("digest", String(64), nullable=False, unique=True),
    Column("task_module", String(64), nullable=False),
    Column("envelope", LargeBinary(16_384), nullable=False),
    Column("not_after", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)
Index("review_of", review.c.task_module, review.c.not_after)

refusal = Table(
    "refusal",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("account_id", Integer, ForeignKey("account.id"), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("code", String(16), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("batch_id", Integer, ForeignKey("refusal_batch.id")),
)
Index("refusal_batch_of", refusal.c.batch_id)

refusal_batch = Table(
    "refusal_batch",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("account_id", Integer, ForeignKey("account.id"), nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("end", BigInteger, nullable=False),
)

# The outbox of the audit log: written in the transaction of its cause, once a key.
event = Table(
    "event",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("key", exact(160), nullable=False, unique=True),
    Column("kind", String(16), nullable=False),  # events.EventKind
    Column("record", LargeBinary(16_384)),
    Column("leaf", LargeBinary(1024)),  # fixed before the log sees it
    Column("created_at", BigInteger, nullable=False),
    Column("log_index", BigInteger),
)
Index("event_waiting", event.c.log_index, event.c.id)

# What is in force and has been logged as such: keys, policy, levels, flavors.
standing = Table(
    "standing",
    METADATA,
    Column("subject", exact(160), primary_key=True),
    Column("record", LargeBinary(16_384), nullable=False),
)

# What its owner's trainer says of a training (`api.progress`); the newest of an account.
training = Table(
    "training",
    METADATA,
    Column("account_id", Integer, ForeignKey("account.id"), primary_key=True),
    Column("label", exact(128), primary_key=True),
    Column("body", Medium, nullable=False),  # api.progress.Training, msgpack
    Column("updated_at", BigInteger, nullable=False),
)

# What runs of a source or a level took (`measurements`); the subject is a digest.
SAMPLE_BYTES = 1024
Samples = LargeBinary(SAMPLE_BYTES).with_variant(mysql.BLOB(), "mysql", "mariadb")
measurement = Table(
    "measurement",
    METADATA,
    Column("subject", String(64), primary_key=True),
    Column("samples", Samples, nullable=False),  # FLOP, msgpack
    Column("updated_at", BigInteger, nullable=False),
    Index("measurement_age", "updated_at"),
)

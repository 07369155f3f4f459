"""Tables of the embedded engine (SQLAlchemy Core; SQLite now, MariaDB unchanged).

The migrations' branch ``engine`` makes what `metadata` says. Times are
whole seconds since 1970; enums are stored as their text. Secrets are stored hashed: the
accounts' keys are derived from a file outside of the database (`accounts`).
"""

from __future__ import annotations

from typing import Any, TypeAlias

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Row,
    Select,
    String,
    Table,
    UniqueConstraint,
)
from sqlalchemy.dialects import mysql

from stoilo.server.engines.database import APP_CHARS, Key, Name, Real

# Rows and queries of columns that only the query names.
AnyRow: TypeAlias = "Row[*tuple[Any, ...]]"
AnySelect: TypeAlias = "Select[*tuple[Any, ...]]"

metadata = MetaData()

KEY_TEXT_CHARS = 1024  # of a BOINC key of 1024 bits: 529
SIGNATURE_CHARS = 512  # of a BOINC signature: 262
INLINE_BYTES = 64 * 1024
Inline = LargeBinary(INLINE_BYTES).with_variant(mysql.MEDIUMBLOB(), "mysql", "mariadb")

users = Table(
    "engine_user",
    metadata,
    Column("id", Key, primary_key=True),
    Column("email", String(254), nullable=False, unique=True),
    Column("key_hash", String(64), nullable=False, unique=True),
    Column("weak_key_hash", String(64), nullable=False, unique=True),
    Column("password_salt", String(32), nullable=False, default=""),
    Column("password_hash", String(128), nullable=False, default=""),
    Column("max_level", String(32), nullable=False),
    Column("created_at", BigInteger, nullable=False),
)

key_changes = Table(  # accounts whose keys are not their first
    "engine_key_change",
    metadata,
    Column("user_id", Key, ForeignKey("engine_user.id"), primary_key=True),
    Column("number", Integer, nullable=False),
    Column("changed_at", BigInteger, nullable=False),
)

# Accounts that turned work away since their last valid result.
account_standings = Table(
    "engine_account_standing",
    metadata,
    Column("user_id", Key, ForeignKey("engine_user.id"), primary_key=True),
    Column("turned_away", Integer, nullable=False),
    Column("paused_until", BigInteger, nullable=False),
)

hosts = Table(
    "engine_host",
    metadata,
    Column("id", Key, primary_key=True),
    Column("user_id", Key, ForeignKey("engine_user.id"), nullable=False),
    Column("cpid", Name, nullable=False),
    Column("rpc_seqno", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("seen_at", BigInteger, nullable=False),
    UniqueConstraint("user_id", "cpid"),
    Index("engine_host_cpid", "cpid"),
)

workunits = Table(
    "engine_workunit",
    metadata,
    Column("id", Key, primary_key=True),
    Column("name", Name, nullable=False, unique=True),
    Column("app", String(APP_CHARS), nullable=False),
    Column("min_quorum", Integer, nullable=False),
    Column("target_results", Integer, nullable=False),
    Column("max_error", Integer, nullable=False),
    Column("max_total", Integer, nullable=False),
    Column("max_success", Integer, nullable=False),
    Column("delay_bound_s", Integer, nullable=False),
    Column("not_after", BigInteger, nullable=False),
    Column("result_max_bytes", BigInteger, nullable=False),
    Column("fpops_est", Real, nullable=False),
    Column("fpops_bound", Real, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("transition_at", BigInteger, nullable=False),
    Column("outcome", String(32)),
    Column("canonical", Name),
    Column("code", String(16), nullable=False, default=""),
    Column("message", String(500), nullable=False, default=""),
    Index("engine_workunit_transition", "outcome", "transition_at"),
)

results = Table(
    "engine_result",
    metadata,
    Column("id", Key, primary_key=True),
    Column("name", Name, nullable=False, unique=True),
    Column("workunit_id", Key, ForeignKey("engine_workunit.id"), nullable=False),
    Column("state", String(16), nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("validity", String(16), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("user_id", Key, nullable=False, default=0),
    Column("host_id", Key, nullable=False, default=0),
    Column("host_key", Name, nullable=False, default=""),
    Column("sent_at", BigInteger, nullable=False, default=0),
    Column("deadline", BigInteger, nullable=False, default=0),
    Column("received_at", BigInteger, nullable=False, default=0),
    Column("code", String(16), nullable=False, default=""),
    Column("upload_name", Name, nullable=False, unique=True),
    Column("upload_token", String(64), nullable=False, unique=True),
    Column("upload_size", BigInteger),
    Column("upload_digest", String(64)),
    Index("engine_result_workunit", "workunit_id", "user_id"),
    Index("engine_result_host", "host_id", "state"),
)
# In the order in which results are handed out: the first that fit are found without
# reading and sorting every other one that waits.
_offer = (results.c.state, results.c.priority.desc(), results.c.id)
Index("engine_result_offer", *_offer)

# Rows only where something differs from the ordinary: most tasks and hosts have none.
offers = Table(
    "engine_offer",
    metadata,
    Column("workunit_id", Key, ForeignKey("engine_workunit.id"), primary_key=True),
    Column("reviewed", Integer, nullable=False),
    Column("public_source", Integer, nullable=False),
    Column("topics", String(640), nullable=False),  # each between two commas
)

wishes = Table(
    "engine_wish",
    metadata,
    Column("host_id", Key, ForeignKey("engine_host.id"), primary_key=True),
    Column("max_level", String(APP_CHARS), nullable=False),
    Column("require_review", Integer, nullable=False),
    Column("require_public_source", Integer, nullable=False),
    Column("topics", String(2200), nullable=False),  # each between two commas
)

# What is known of people and their computers beside what every call needs.
people = Table(
    "engine_person",
    metadata,
    Column("user_id", Key, ForeignKey("engine_user.id"), primary_key=True),
    Column("name", String(60), nullable=False, default=""),
    Column("export_id", String(32), nullable=False),  # in public statistics only
    Column("exported", Integer, nullable=False, default=0),
    Column("venue", String(16), nullable=False, default=""),
    Column("banned_at", BigInteger, nullable=False, default=0),  # 0: it is not
    Column("total_credit", Double, nullable=False, default=0.0),
    Column("average_credit", Double, nullable=False, default=0.0),
    Column("average_at", BigInteger, nullable=False, default=0),
)

preferences = Table(
    "engine_preference",
    metadata,
    Column("user_id", Key, ForeignKey("engine_user.id"), primary_key=True),
    Column("levels", String(64), nullable=False),  # each between two commas
    Column("require_review", Integer, nullable=False),
    Column("require_public_source", Integer, nullable=False),
    Column("topics", String(2200), nullable=False),  # each between two commas
    Column("modified_at", BigInteger, nullable=False),
)

global_preferences = Table(
    "engine_global_preference",
    metadata,
    Column("user_id", Key, ForeignKey("engine_user.id"), primary_key=True),
    Column("modified_at", BigInteger, nullable=False),
    Column("document", String(4000), nullable=False),  # ours, made of numbers
)

host_records = Table(
    "engine_host_record",
    metadata,
    Column("host_id", Key, ForeignKey("engine_host.id"), primary_key=True),
    Column("domain_name", String(128), nullable=False, default=""),
    Column("vendor", String(128), nullable=False, default=""),
    Column("model", String(128), nullable=False, default=""),
    Column("os_name", String(128), nullable=False, default=""),
    Column("os_version", String(128), nullable=False, default=""),
    Column("platform", String(64), nullable=False, default=""),
    Column("client", String(32), nullable=False, default=""),
    Column("ncpus", Integer, nullable=False, default=1),
    Column("fpops", Double, nullable=False, default=0.0),
    Column("memory_bytes", Double, nullable=False, default=0.0),
    Column("disk_free_bytes", Double, nullable=False, default=0.0),
    Column("stored_at", BigInteger, nullable=False, default=0),
    Column("total_credit", Double, nullable=False, default=0.0),
    Column("average_credit", Double, nullable=False, default=0.0),
    Column("average_at", BigInteger, nullable=False, default=0),
)

# One row a result that was paid for; it outlives the result.
grants = Table(
    "engine_credit",
    metadata,
    Column("copy_id", Key, primary_key=True, autoincrement=False),
    Column("user_id", Key, nullable=False),
    Column("host_id", Key, nullable=False),
    Column("granted", Double, nullable=False),
    Column("granted_at", BigInteger, nullable=False),
)

quotas = Table(
    "engine_quota",
    metadata,
    Column("host_id", Key, ForeignKey("engine_host.id"), primary_key=True),
    Column("app", String(APP_CHARS), primary_key=True),
    Column("per_cpu", Integer, nullable=False),
    Column("day", Integer, nullable=False),
    Column("issued", Integer, nullable=False),
    Column("errors_in_row", Integer, nullable=False),
    Column("paused_until", BigInteger, nullable=False),
)

files = Table(
    "engine_file",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("token", String(64), nullable=False, unique=True),
    Column("size", BigInteger, nullable=False),
    Column("md5", String(32), nullable=False),
    Column("content", Inline),  # None: the bytes lie in a file named by the digest
)

workunit_files = Table(
    "engine_workunit_file",
    metadata,
    Column("workunit_id", Key, ForeignKey("engine_workunit.id"), primary_key=True),
    Column("open_name", String(64), primary_key=True),
    Column("digest", String(64), ForeignKey("engine_file.digest"), nullable=False),
    Column("sticky", Integer, nullable=False),
    Index("engine_workunit_file_digest", "digest"),
)

outbox = Table(
    "engine_outbox",
    metadata,
    Column("workunit_id", Key, ForeignKey("engine_workunit.id"), primary_key=True),
    Column("created_at", BigInteger, nullable=False),
    Column("retry_at", BigInteger, nullable=False),
    Column("attempts", Integer, nullable=False),
    Index("engine_outbox_retry", "retry_at"),
)

settings = Table(
    "engine_setting",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", String(255), nullable=False),
)

# What a result needs of a host, bytes; 0: not said.
bounds = Table(
    "engine_bound",
    metadata,
    Column("workunit_id", Key, ForeignKey("engine_workunit.id"), primary_key=True),
    Column("memory_bytes", BigInteger, nullable=False),
    Column("disk_bytes", BigInteger, nullable=False),
)

# What a host says that a result took; the server asks only for those that are valid.
usages = Table(
    "engine_usage",
    metadata,
    Column("copy_id", Key, ForeignKey("engine_result.id"), primary_key=True),
    Column("cpu_s", Real, nullable=False),
    Column("flops", Real, nullable=False),
)

# Sticky files that were sent to a host, until it has deleted them.
leases = Table(
    "engine_lease",
    metadata,
    Column("host_id", Key, ForeignKey("engine_host.id"), primary_key=True),
    Column("digest", String(64), primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("lent_at", BigInteger, nullable=False),
    Column("needed_until", BigInteger, nullable=False),
    Column("held", Integer, nullable=False),  # the host has said that it has it
)

# The program of an app version; rows stay for ever, so that no number comes back.
programs = Table(
    "engine_program",
    metadata,
    Column("version_num", Integer, primary_key=True, autoincrement=False),
    Column("platform", Name, nullable=False),
    Column("launcher", String(64), nullable=False),  # digests of files
    Column("launcher_signature", String(SIGNATURE_CHARS), nullable=False),
    Column("verifier", String(64), nullable=False),
    Column("verifier_signature", String(SIGNATURE_CHARS), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("replaced_at", BigInteger, nullable=False),  # 0: in force
    Column("served", Integer, nullable=False),  # whether its files are kept
)

code_sign_keys = Table(
    "engine_code_sign_key",
    metadata,
    Column("place", Integer, primary_key=True, autoincrement=False),  # 0: in force
    Column("text", String(KEY_TEXT_CHARS), nullable=False),
    # over the one in force
    Column("signature", String(SIGNATURE_CHARS), nullable=False),
)

# Replication and trust. Rows only where something differs from the ordinary.
replications = Table(
    "engine_replication",
    metadata,
    Column("workunit_id", Key, ForeignKey("engine_workunit.id"), primary_key=True),
    Column("homogeneous", String(8), nullable=False),
    Column("host_class", String(64), nullable=False),  # empty: of none yet
    Column("alone", Integer, nullable=False),  # one result is enough so far
)

lingering = Table(  # ended with a canonical result that is still compared with
    "engine_lingering",
    metadata,
    Column("workunit_id", Key, ForeignKey("engine_workunit.id"), primary_key=True),
)

histories = Table(
    "engine_host_history",
    metadata,
    Column("host_id", Key, primary_key=True),
    Column("app", String(APP_CHARS), primary_key=True),
    Column("consecutive_valid", Integer, nullable=False),
)

trusted_users = Table(
    "engine_trusted_user",
    metadata,
    Column("user_id", Key, ForeignKey("engine_user.id"), primary_key=True),
    Column("since", BigInteger, nullable=False),
)

bans = Table(
    "engine_ban",
    metadata,
    Column("host_id", Key, primary_key=True),
    Column("host_key", Name, nullable=False),
    Column("workunit_id", Key, nullable=False),
    Column("since", BigInteger, nullable=False),
    Index("engine_ban_key", "host_key"),
)

spot_checks = Table(
    "engine_spot_check",
    metadata,
    Column("copy_id", Key, ForeignKey("engine_result.id"), primary_key=True),
    Column("workunit_id", Key, ForeignKey("engine_workunit.id"), nullable=False),
    Column("verdict", String(16), nullable=False),
    Column("made_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger, nullable=False),
    Index("engine_spot_check_workunit", "workunit_id"),
    Index("engine_spot_check_ended", "ended_at"),
)

resumptions = Table(  # results whose run was interrupted and went on from a checkpoint
    "engine_resumption",
    metadata,
    Column("copy_id", Key, ForeignKey("engine_result.id"), primary_key=True),
    Column("step", BigInteger, nullable=False),
)

excuses = Table(  # hosts found wrong in a resumed run, and not banned for it
    "engine_excuse",
    metadata,
    Column("host_id", Key, primary_key=True, autoincrement=False),
    Column("workunit_id", Key, primary_key=True, autoincrement=False),
    Column("since", BigInteger, nullable=False),
)

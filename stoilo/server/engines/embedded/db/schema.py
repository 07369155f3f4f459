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
    Column("key_number", Integer, nullable=False, default=0),  # how often it changed
    Column("password_salt", String(32), nullable=False, default=""),
    Column("password_hash", String(128), nullable=False, default=""),
    Column("name", String(60), nullable=False, default=""),
    Column("created_at", BigInteger, nullable=False),
    Column("banned_at", BigInteger, nullable=False, default=0),  # 0: it is not
    Column("trusted", Integer, nullable=False, default=0),  # its hosts check others
    Column("total_credit", Double, nullable=False, default=0.0),
    # work turned away since its last valid result
    Column("turned_away", Integer, nullable=False, default=0),
    Column("paused_until", BigInteger, nullable=False, default=0),
    # when it left the project, 0: it takes part
    Column("left_at", BigInteger, nullable=False, server_default="0"),
    # what its volunteer chose; words each between two commas
    Column("max_level", String(APP_CHARS), nullable=False),
    Column("levels", String(64), nullable=False),
    Column("require_review", Integer, nullable=False, default=0),
    Column("require_public_source", Integer, nullable=False, default=0),
    Column("topics", String(2200), nullable=False, default=""),
    # BOINC's global preferences: a document of ours, made of numbers
    Column("preferences_at", BigInteger, nullable=False, default=0),
    Column("document", String(4000), nullable=False, default=""),
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
    Column("total_credit", Double, nullable=False, default=0.0),
    # the workunit for which it gets no work, 0 for none: by the operator's hand
    Column("ban", Key),
    # what it said of itself, and when that was stored
    Column("domain_name", String(128), nullable=False),
    Column("vendor", String(128), nullable=False),
    Column("model", String(128), nullable=False),
    Column("os_name", String(128), nullable=False),
    Column("os_version", String(128), nullable=False),
    Column("platform", String(64), nullable=False),
    Column("client", String(32), nullable=False),
    Column("ncpus", Integer, nullable=False),
    Column("fpops", Double, nullable=False),
    Column("memory_bytes", Double, nullable=False),
    Column("disk_free_bytes", Double, nullable=False),
    Column("stored_at", BigInteger, nullable=False),
    # what it asked not to be sent; topics each between two commas
    Column("max_level", String(APP_CHARS), nullable=False, default=""),
    Column("require_review", Integer, nullable=False, default=0),
    Column("require_public_source", Integer, nullable=False, default=0),
    Column("topics", String(2200), nullable=False, default=""),
    UniqueConstraint("user_id", "cpid"),
    Index("engine_host_cpid", "cpid"),
    Index("engine_host_ban", "ban"),
)

host_apps = Table(  # a host's standing with each app that it has had
    "engine_host_app",
    metadata,
    Column("host_id", Key, ForeignKey("engine_host.id"), primary_key=True),
    Column("app", String(APP_CHARS), primary_key=True),
    Column("per_cpu", Integer, nullable=False),
    Column("day", Integer, nullable=False),
    Column("issued", Integer, nullable=False),
    Column("errors_in_row", Integer, nullable=False),
    Column("paused_until", BigInteger, nullable=False),
    Column("consecutive_valid", Integer, nullable=False, default=0),
)

workunits = Table(
    "engine_workunit",
    metadata,
    Column("id", Key, primary_key=True),
    Column("name", Name, nullable=False, unique=True),
    Column("app", String(APP_CHARS), nullable=False),
    Column("state", String(16), nullable=False, default="running"),  # `WorkunitState`
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
    Column("created_at", BigInteger, nullable=False),
    Column("transition_at", BigInteger, nullable=False),
    # which hosts may have it; topics each between two commas
    Column("reviewed", Integer, nullable=False),
    Column("public_source", Integer, nullable=False),
    Column("topics", String(640), nullable=False),
    Column("memory_bound", BigInteger, nullable=False),  # bytes, 0: not said
    Column("disk_bound", BigInteger, nullable=False),
    Column("homogeneous", String(8), nullable=False),
    Column("host_class", String(64), nullable=False, default=""),  # empty: of none yet
    Column("alone", Integer, nullable=False),  # one result is enough so far
    # how it ended
    Column("outcome", String(32)),
    Column("canonical", Name),
    Column("code", String(16), nullable=False, default=""),
    Column("message", String(500), nullable=False, default=""),
    # when the server is told (again); NULL: it has no outcome, or that was taken
    Column("tell_at", BigInteger),
    Column("told", Integer, nullable=False, default=0),  # how often in vain
    Index("engine_workunit_transition", "state", "transition_at"),
    Index("engine_workunit_tell", "tell_at"),
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
    Column("user_id", Key, nullable=False, default=0),
    Column("host_id", Key, nullable=False, default=0),
    Column("host_key", Name, nullable=False, default=""),
    Column("sent_at", BigInteger, nullable=False, default=0),
    Column("deadline", BigInteger, nullable=False, default=0),
    Column("received_at", BigInteger, nullable=False, default=0),
    Column("code", String(16), nullable=False, default=""),
    Column("upload_name", Name, nullable=False, unique=True),
    # which goes out first, see `workunits.ranks`
    Column("rank", BigInteger, nullable=False, server_default="0"),
    Column("upload_token", String(64), nullable=False, unique=True),
    Column("upload_size", BigInteger),
    Column("upload_digest", String(64)),
    # what its host says that it took, 0: not said; only of those that are valid
    Column("cpu_s", Real, nullable=False, default=0.0),
    Column("flops", Real, nullable=False, default=0.0),
    # the step from which its host says that the run was resumed, 0: in one go
    Column("resumed_at", BigInteger, nullable=False, default=0),
    Column("granted", Double),  # NULL: not paid yet
    # of a spot check: its `CheckVerdict`, and when it ended; empty for all others
    Column("recheck", String(16), nullable=False, default=""),
    Column("check_ended_at", BigInteger, nullable=False, default=0),
    Index("engine_result_workunit", "workunit_id", "user_id"),
    Index("engine_result_host", "host_id", "state"),
)
# In the order in which results are handed out: the first that fit are found without
# reading and sorting every other one that waits.
Index("engine_result_turn", results.c.state, results.c.rank, results.c.id)

excuses = Table(  # hosts found wrong in a resumed run, and not banned for it
    "engine_excuse",
    metadata,
    Column("host_id", Key, primary_key=True, autoincrement=False),
    Column("workunit_id", Key, primary_key=True, autoincrement=False),
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

settings = Table(
    "engine_setting",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", String(255), nullable=False),
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

"""Our tables beside BOINC's: what was asked for, what became of it, what is undelivered.

The migrations' branch ``stock`` makes what `metadata` says. They lie in the project's own
database, so that one transaction sees both. Times are whole seconds since 1970; enums are
stored as their text. Rows go when BOINC has purged the workunit and its files are gone.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
)
from sqlalchemy.dialects import mysql

from stoilo.server.engines.database import APP_CHARS, Key, Name, Real

metadata = MetaData()

FILE_CHARS = 64
# ASCII, so that it can be compared with BOINC's columns whatever their character set
Line = Text().with_variant(
    mysql.TEXT(charset="ascii", collation="ascii_bin"), "mysql", "mariadb"
)

settings = Table(
    "stoilo_setting",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", String(255), nullable=False),
)

workunits = Table(
    "stoilo_workunit",
    metadata,
    Column("id", Key, primary_key=True),
    Column("name", Name, nullable=False, unique=True),
    Column("app", String(APP_CHARS), nullable=False),
    Column("min_quorum", Integer, nullable=False),
    Column("max_error", Integer, nullable=False),
    Column("max_total", Integer, nullable=False),
    # the last moment at which a result may go out: it could still come back in time
    Column("last_at", BigInteger, nullable=False),
    # what create_work is told: for every workunit of its kind, and of this one
    Column("arguments", String(400), nullable=False),
    Column("line", Line, nullable=False),
    # name of the file with the release metadata among its inputs, empty without
    Column("release_file", String(FILE_CHARS), nullable=False, default=""),
    Column("created_at", BigInteger, nullable=False),
    # BOINC's row, 0 until create_work has made it
    Column("boinc_id", BigInteger, nullable=False, default=0),
    # 1 once no result may be issued any more: the admission ends
    Column("frozen", Integer, nullable=False, default=0),
    # NULL while it runs; then never changed
    Column("outcome", String(32), nullable=True),
    Column("code", String(16), nullable=False, default=""),
    Column("message", String(500), nullable=False, default=""),
    # 1 while the outcome waits to be delivered
    Column("undelivered", Integer, nullable=False, default=0),
    # when the outcome is to be delivered again; before: when BOINC is to make it again
    Column("retry_at", BigInteger, nullable=False, default=0),
    Column("attempts", Integer, nullable=False, default=0),
    # 1 while BOINC has yet to be told that it is cancelled
    Column("cancelling", Integer, nullable=False, default=0),
    # when BOINC is to ask about its results again, 0 where it need not
    Column("ask_at", BigInteger, nullable=False, default=0),
    Column("asked", Integer, nullable=False, default=0),  # how often
    # 1 once BOINC has been made to ask: the next answer is a new one
    Column("ask_put", Integer, nullable=False, default=0),
    # 1 when nothing of it needs files any more
    Column("closed", Integer, nullable=False, default=0),
    Index("stoilo_workunit_boinc", "boinc_id", "id"),
    Index("stoilo_workunit_release", "outcome", "release_file"),
    Index("stoilo_workunit_last", "outcome", "frozen", "last_at"),
    Index("stoilo_workunit_ask", "outcome", "ask_at"),
    Index("stoilo_workunit_undelivered", "undelivered", "retry_at"),
    Index("stoilo_workunit_cancelling", "cancelling"),
    Index("stoilo_workunit_closed", "closed", "id"),
)

# Input files that a workunit claims; also those that results issued earlier were told of.
needs = Table(
    "stoilo_need",
    metadata,
    Column("workunit_id", Key, ForeignKey(workunits.c.id), primary_key=True),
    Column("file", String(FILE_CHARS), primary_key=True),
    Index("stoilo_need_file", "file"),
)

# Results of which something final was said. One that passed is bound to the bytes that
# did, and its row is what the outcome says of it, whatever becomes of BOINC's.
results = Table(
    "stoilo_result",
    metadata,
    Column("name", Name, primary_key=True),
    Column("workunit_id", Key, ForeignKey(workunits.c.id), nullable=False),
    Column("verdict", String(32), nullable=False),
    Column("code", String(16), nullable=False, default=""),
    Column("message", String(500), nullable=False, default=""),
    # 1: it agrees with the outcome; 2: it is the canonical one
    Column("agrees", Integer, nullable=False, default=0),
    Column("size", BigInteger, nullable=False, default=0),
    Column("digest", String(64), nullable=False, default=""),
    Column("host_id", BigInteger, nullable=False, default=0),
    Column("user_id", BigInteger, nullable=False, default=0),
    Column("received_at", BigInteger, nullable=False, default=0),
    Column("cpu_s", Real, nullable=False, default=0.0),
    Column("flops", Real, nullable=False, default=0.0),
    # of a refusal: what BOINC will take from the host's record and is given back
    Column("app_version_id", BigInteger, nullable=False, default=0),
    Column("jobs_per_day", Integer, nullable=False, default=0),
    Column("consecutive_valid", Integer, nullable=False, default=0),
    Column("owed", Integer, nullable=False, default=0),
    Index("stoilo_result_workunit", "workunit_id"),
    Index("stoilo_result_owed", "owed"),
)

# The tables whose rows belong to a workunit.
parts = tuple(table for table in metadata.sorted_tables if "workunit_id" in table.c)

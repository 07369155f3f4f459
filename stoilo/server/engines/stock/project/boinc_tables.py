"""BOINC's own tables, the columns that we read, and the numbers in them.

They belong to the project: nothing here makes or changes them. Names and numbers are
those of BOINC's database. What we write into them, all of it, is in `nudges`.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

from sqlalchemy import (
    Column,
    Double,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
)

metadata = MetaData()


class ServerState(IntEnum):
    """``result.server_state``."""

    INACTIVE = 1
    UNSENT = 2
    IN_PROGRESS = 4
    OVER = 5


class BoincOutcome(IntEnum):
    """``result.outcome``."""

    INIT = 0
    SUCCESS = 1
    COULDNT_SEND = 2
    CLIENT_ERROR = 3
    NO_REPLY = 4
    DIDNT_NEED = 5
    VALIDATE_ERROR = 6
    CLIENT_DETACHED = 7


class Validate(IntEnum):
    """``result.validate_state``."""

    INIT = 0
    VALID = 1
    INVALID = 2
    NO_CHECK = 3
    INCONCLUSIVE = 4
    TOO_LATE = 5


class StageState(IntEnum):
    """``workunit.assimilate_state``."""

    INIT = 0
    READY = 1
    DONE = 2


class FileDelete(IntEnum):
    """``file_delete_state``."""

    INIT = 0
    READY = 1
    DONE = 2
    ERROR = 3


class ErrorMask(IntFlag):
    """``workunit.error_mask``."""

    COULDNT_SEND = 1
    TOO_MANY_ERRORS = 2
    TOO_MANY_SUCCESS = 4
    TOO_MANY_TOTAL = 8
    CANCELLED = 16
    NO_CANONICAL = 32


apps = Table(
    "app",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(191)),
    Column("deprecated", SmallInteger),
    Column("homogeneous_redundancy", SmallInteger),
)

platforms = Table(
    "platform",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(191)),
)

app_versions = Table(
    "app_version",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("appid", Integer),
    Column("version_num", Integer),
    Column("platformid", Integer),
    Column("xml_doc", LargeBinary),
    Column("deprecated", SmallInteger),
    Column("plan_class", String(128)),
)

users = Table(
    "user",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("project_prefs", LargeBinary),
)

hosts = Table(
    "host",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("userid", Integer),
    Column("rpc_time", Integer),
    Column("p_fpops", Double),
)

host_app_versions = Table(
    "host_app_version",
    metadata,
    Column("host_id", Integer),
    Column("app_version_id", Integer),
    Column("max_jobs_per_day", Integer),
    Column("consecutive_valid", Integer),
)

workunits = Table(
    "workunit",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(191)),
    Column("appid", Integer),
    Column("xml_doc", LargeBinary),
    Column("need_validate", SmallInteger),
    Column("canonical_resultid", Integer),
    Column("transition_time", Integer),
    Column("error_mask", Integer),
    Column("file_delete_state", Integer),
    Column("assimilate_state", Integer),
    Column("target_nresults", Integer),
    Column("max_error_results", Integer),
    Column("max_total_results", Integer),
)

results = Table(
    "result",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("workunitid", Integer),
    Column("server_state", Integer),
    Column("outcome", Integer),
    Column("hostid", Integer),
    Column("userid", Integer),
    Column("sent_time", Integer),
    Column("received_time", Integer),
    Column("report_deadline", Integer),
    Column("name", String(191)),
    Column("cpu_time", Double),
    Column("xml_doc_in", LargeBinary),
    Column("exit_status", Integer),
    Column("validate_state", Integer),
    Column("app_version_id", Integer),
)

"""BOINC's own tables, the columns that we read, and the numbers in them.

They belong to the project: nothing here makes or changes them. Names and numbers are
those of BOINC's database. What we write into them is in `boinc_rows` and `early_ends`.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, Double, Integer, LargeBinary, MetaData, String, Table

if TYPE_CHECKING:
    from sqlalchemy.types import TypeEngine


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


metadata = MetaData()


def _table(name: str, /, **columns: type[TypeEngine[Any]]) -> Table:
    return Table(name, metadata, *(Column(key, kind) for key, kind in columns.items()))


apps = _table("app", id=Integer, name=String)
users = _table("user", id=Integer, project_prefs=LargeBinary)
hosts = _table("host", id=Integer, userid=Integer, rpc_time=Integer, p_fpops=Double)
host_app_versions = _table(
    "host_app_version",
    host_id=Integer,
    app_version_id=Integer,
    max_jobs_per_day=Integer,
    consecutive_valid=Integer,
)
workunits = _table(
    "workunit",
    id=Integer,
    name=String,
    xml_doc=LargeBinary,
    need_validate=Integer,
    canonical_resultid=Integer,
    transition_time=Integer,
    error_mask=Integer,
    file_delete_state=Integer,
    assimilate_state=Integer,
    max_error_results=Integer,
    max_total_results=Integer,
)
results = _table(
    "result",
    id=Integer,
    workunitid=Integer,
    server_state=Integer,
    outcome=Integer,
    hostid=Integer,
    userid=Integer,
    sent_time=Integer,
    received_time=Integer,
    name=String,
    cpu_time=Double,
    xml_doc_in=LargeBinary,
    exit_status=Integer,
    validate_state=Integer,
    app_version_id=Integer,
)

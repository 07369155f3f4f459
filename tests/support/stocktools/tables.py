"""BOINC's tables as far as the tools, daemons and hosts here need them."""

from __future__ import annotations

from typing import Final

__all__ = ["TABLES", "create_statements"]

_INTEGERS: Final = "INTEGER NOT NULL DEFAULT 0"
_NUMBER: Final = "DOUBLE NOT NULL DEFAULT 0"
_NAME: Final = "VARCHAR(191) NOT NULL DEFAULT ''"
_BLOB: Final = "BLOB"
_CHANGED: Final = (
    "TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP"
)

TABLES: Final[dict[str, dict[str, str]]] = {
    "platform": {"name": _NAME, "user_friendly_name": _NAME},
    "app": {
        "name": _NAME,
        "user_friendly_name": _NAME,
        "deprecated": _INTEGERS,
        "homogeneous_redundancy": _INTEGERS,
        "homogeneous_app_version": _INTEGERS,
        "target_nresults": _INTEGERS,
    },
    "app_version": {
        "appid": _INTEGERS,
        "version_num": _INTEGERS,
        "platformid": _INTEGERS,
        "xml_doc": "MEDIUMBLOB",
        "deprecated": _INTEGERS,
        "plan_class": _NAME,
    },
    "user": {
        "name": _NAME,
        "email_addr": _NAME,
        "authenticator": _NAME,
        "project_prefs": _BLOB,
    },
    "host": {
        "userid": _INTEGERS,
        "rpc_time": _INTEGERS,
        "p_fpops": _NUMBER,
        "host_cpid": _NAME,
    },
    "host_app_version": {
        "host_id": _INTEGERS,
        "app_version_id": _INTEGERS,
        "max_jobs_per_day": _INTEGERS,
        "consecutive_valid": _INTEGERS,
    },
    "workunit": {
        "create_time": _INTEGERS,
        "appid": _INTEGERS,
        "name": "VARCHAR(191) NOT NULL UNIQUE",
        "xml_doc": _BLOB,
        "rsc_fpops_est": _NUMBER,
        "rsc_fpops_bound": _NUMBER,
        "rsc_memory_bound": _NUMBER,
        "rsc_disk_bound": _NUMBER,
        "need_validate": _INTEGERS,
        "canonical_resultid": _INTEGERS,
        "transition_time": _INTEGERS,
        "delay_bound": _INTEGERS,
        "error_mask": _INTEGERS,
        "file_delete_state": _INTEGERS,
        "assimilate_state": _INTEGERS,
        "min_quorum": _INTEGERS,
        "target_nresults": _INTEGERS,
        "max_error_results": _INTEGERS,
        "max_total_results": _INTEGERS,
        "max_success_results": _INTEGERS,
        "result_template_file": "VARCHAR(63) NOT NULL DEFAULT ''",
        "priority": _INTEGERS,
        "batch": _INTEGERS,
        "mod_time": _CHANGED,
    },
    "user_submit": {"user_id": _INTEGERS},
    "user_submit_app": {"user_id": _INTEGERS, "app_id": _INTEGERS},
    "result": {
        "workunitid": _INTEGERS,
        "server_state": _INTEGERS,
        "outcome": _INTEGERS,
        "hostid": _INTEGERS,
        "userid": _INTEGERS,
        "report_deadline": _INTEGERS,
        "sent_time": _INTEGERS,
        "received_time": _INTEGERS,
        "name": "VARCHAR(191) NOT NULL UNIQUE",
        "cpu_time": _NUMBER,
        "xml_doc_in": _BLOB,
        "file_delete_state": _INTEGERS,
        "validate_state": _INTEGERS,
        "appid": _INTEGERS,
        "exit_status": _INTEGERS,
        "priority": _INTEGERS,
        "app_version_id": _INTEGERS,
    },
}


def create_statements(*, sqlite: bool) -> list[str]:
    """Return the statements that make the tables."""
    key = "INTEGER PRIMARY KEY" if sqlite else "INTEGER PRIMARY KEY AUTO_INCREMENT"
    made = []
    for table, columns in TABLES.items():
        kinds = {
            name: _INTEGERS if sqlite and kind == _CHANGED else kind
            for name, kind in columns.items()
        }
        lines = ", ".join(f"`{name}` {kind}" for name, kind in kinds.items())
        made.append(f"CREATE TABLE `{table}` (id {key}, {lines})")
    made.append("CREATE INDEX res_wuid ON result (workunitid)")
    made.append("CREATE INDEX ind_res_st ON result (server_state, priority)")
    made.append("CREATE INDEX wu_timeout ON workunit (transition_time)")
    return made

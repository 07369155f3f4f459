"""Every metric that a server shows: the one list, also for the docs and the dashboard.

Labels take their values from lists of ours (states, methods, levels): nobody outside can
make a series. No name of a person, task, host, file or address is in any of them.
"""

from __future__ import annotations

from typing import Final

from stoilo.server.watching.text import Kind, Metric

_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

METRICS: Final = (
    Metric("stoilo_build_info", _G, "1, with the server's version.", ("version",)),
    Metric("stoilo_start_time_seconds", _G, "When the server started, s since 1970."),
    Metric("stoilo_resident_memory_bytes", _G, "Memory of the server's process."),
    Metric("stoilo_cpu_seconds_total", _C, "Processor time of the server's process."),
    Metric("stoilo_open_files", _G, "Descriptors that the server's process holds."),
    Metric("stoilo_ready", _G, "1 while /readyz says yes."),
    Metric("stoilo_ready_check", _G, "1 while this check says yes.", ("check",)),
    # tasks
    Metric("stoilo_tasks", _G, "Tasks that are stored, by state.", ("state",)),
    Metric(
        "stoilo_attempts", _G, "Attempts under way, by their last step.", ("state",)
    ),
    Metric(
        "stoilo_attempt_age_seconds",
        _G,
        "Age of the oldest attempt that waits at this step.",
        ("state",),
    ),
    Metric("stoilo_events_waiting", _G, "Events that are to be logged."),
    Metric(
        "stoilo_validators_waiting", _G, "Calls of validators that wait for a jail."
    ),
    # admission and log
    Metric("stoilo_admissions_total", _C, "Admissions signed since the start."),
    Metric(
        "stoilo_admissions_refused_total", _C, "Refusals of the signer since the start."
    ),
    Metric(
        "stoilo_epoch_admissions_per_minute", _G, "What the gate epoch allows a minute."
    ),
    Metric(
        "stoilo_epoch_remaining_seconds", _G, "Until the last certified epoch ends."
    ),
    Metric("stoilo_log_leaves_total", _C, "Leaves acknowledged by the log."),
    Metric("stoilo_log_published_leaves", _G, "Leaves under the published checkpoint."),
    Metric(
        "stoilo_log_unpublished_leaves", _G, "Leaves that no checkpoint covers yet."
    ),
    Metric(
        "stoilo_log_lag_seconds",
        _G,
        "For how long leaves have waited for a checkpoint.",
    ),
    Metric(
        "stoilo_release_remaining_seconds", _G, "Until metadata expires.", ("role",)
    ),
    # engine
    Metric("stoilo_workunits", _G, "Workunits under way."),
    Metric(
        "stoilo_copies",
        _G,
        "Copies of workunits, by state and outcome.",
        ("state", "outcome"),
    ),
    Metric("stoilo_copies_unsent_age_seconds", _G, "Age of the oldest unsent copy."),
    Metric("stoilo_validation_backlog", _G, "Results that wait for the validator."),
    Metric(
        "stoilo_validation_age_seconds", _G, "Age of the oldest result that waits so."
    ),
    Metric("stoilo_outcomes_waiting", _G, "Workunits that the server has yet to take."),
    Metric("stoilo_accounts", _G, "Volunteers' accounts."),
    Metric("stoilo_hosts", _G, "Hosts that called lately.", ("within",)),
    Metric("stoilo_hosts_banned", _G, "Hosts that are banned."),
    # calls
    Metric(
        "stoilo_rpc_seconds",
        _H,
        "Researchers' and reviewers' calls, by method and gRPC status.",
        ("method", "code"),
    ),
    Metric(
        "stoilo_http_seconds",
        _H,
        "Volunteers' and readers' calls, by route and status class.",
        ("route", "status"),
    ),
    # machine
    Metric("stoilo_disk_free_bytes", _G, "Room on the disk of a place.", ("place",)),
    Metric("stoilo_disk_bytes", _G, "Size of the disk of a place.", ("place",)),
)

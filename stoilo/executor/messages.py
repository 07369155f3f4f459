"""BOINC's scheduler RPC as records, shared by the volunteer and the embedded project.

The shapes are those of reference/boinc.md §3.3 to §3.5, taken from a real 7.20.5 client
and a server that it accepts. The text is in `wire` and, for the project's half, in
`stoilo.server.engines.embedded.xml`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = [
    "MOST_TOPICS",
    "TOPIC",
    "FileInfo",
    "FileRef",
    "OtherResult",
    "ReportedResult",
    "ResultInfo",
    "ResultState",
    "SchedulerReply",
    "SchedulerRequest",
    "UploadInfo",
    "Wishes",
    "WorkunitInfo",
]


class ResultState:
    """BOINC's client states in a report (``lib/common_defs.h``)."""

    DOWNLOAD_ERROR = 1
    COMPUTE_ERROR = 3
    UPLOADED = 5
    ABORTED = 6


@dataclass(frozen=True, slots=True)
class ReportedResult:
    """A copy that the host has finished.

    Attributes:
        name: BOINC result name.
        state: one of `ResultState`; UPLOADED means success.
        exit_status: 0, or BOINC's exit code.
        cpu_s: processor time, s.
        elapsed_s: elapsed time, s.
        stderr: bounded text for the operator, free of paths.
    """

    name: str
    state: int
    exit_status: int = 0
    cpu_s: float = 0.0
    elapsed_s: float = 0.0
    stderr: str = ""


@dataclass(frozen=True, slots=True)
class OtherResult:
    """A copy that the host holds and has not finished."""

    name: str


TOPIC: Final = re.compile(r"[A-Za-z0-9_./+-]{1,64}")
"""How a topic is written."""

MOST_TOPICS: Final = 32
"""In one request."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a host asks not to be sent; it would refuse that anyway (ours, not BOINC's).

    Attributes:
        max_level: highest level, empty for the account's.
        require_review: only reviewed tasks.
        require_public_source: only tasks of public source.
        topics: when not empty, only tasks that carry one of these.
    """

    max_level: str = ""
    require_review: bool = False
    require_public_source: bool = False
    topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SchedulerRequest:
    """What a client tells the scheduler.

    Attributes:
        authenticator: the account key. Secret.
        host_id: 0 on first contact.
        rpc_seqno: grows by one with every request of this host.
        cpid: the host's own identity, 32 hex digits.
        cpu_req_secs: work wanted, s.
        cpu_req_instances: idle processors.
        dont_send_work: report only.
        ncpus: processors of the host.
        results: finished copies.
        other_results: unfinished copies.
        wishes: what not to send.
        wait_s: the project may hold an empty answer that long for work to come (ours;
            other servers ignore it).
    """

    authenticator: str
    host_id: int
    rpc_seqno: int
    cpid: str
    cpu_req_secs: float = 0.0
    cpu_req_instances: float = 0.0
    dont_send_work: bool = False
    ncpus: int = 1
    results: tuple[ReportedResult, ...] = ()
    other_results: tuple[OtherResult, ...] = ()
    wait_s: float = 0.0
    wishes: Wishes = Wishes()


@dataclass(frozen=True, slots=True)
class FileInfo:
    """An input file: immutable, named for ever, fetched from `url`."""

    name: str
    url: str
    nbytes: int
    md5: str
    sticky: bool = False


@dataclass(frozen=True, slots=True)
class FileRef:
    """Under which name an application opens a file."""

    file_name: str
    open_name: str


@dataclass(frozen=True, slots=True)
class UploadInfo:
    """The one output file of a copy."""

    name: str
    url: str
    max_nbytes: int


@dataclass(frozen=True, slots=True)
class WorkunitInfo:
    """A workunit: app, estimates (FLOP) and input files."""

    name: str
    app: str
    fpops_est: float
    fpops_bound: float
    files: tuple[FileRef, ...]


@dataclass(frozen=True, slots=True)
class ResultInfo:
    """A copy handed to this host; the deadline is s since 1970."""

    name: str
    workunit: str
    deadline: int
    upload: str


@dataclass(frozen=True, slots=True)
class SchedulerReply:
    """What the scheduler answers.

    Attributes:
        host_id: the host's new id, 0 when it keeps the one it has.
        acks: reported copies that the project has taken note of.
        aborts: copies that nobody needs any more.
        files: input files of the workunits below.
        uploads: output files of the copies below.
        workunits: what the copies below belong to.
        results: copies for this host, new ones and those it had lost.
        next_rpc_delay: the client shall call again after at most that many s.
        request_delay: the client shall not call before that many s.
        messages: text for the user.
        bad_key: the account key is unknown.
        down: the project is down for maintenance.
        waits: the project holds empty answers when asked to (`wait_s`), so that an idle
            host may call again at once.
    """

    host_id: int = 0
    acks: tuple[str, ...] = ()
    aborts: tuple[str, ...] = ()
    files: tuple[FileInfo, ...] = ()
    uploads: tuple[UploadInfo, ...] = ()
    workunits: tuple[WorkunitInfo, ...] = ()
    results: tuple[ResultInfo, ...] = ()
    next_rpc_delay: float = 0.0
    request_delay: float = 0.0
    messages: tuple[str, ...] = ()
    bad_key: bool = False
    down: bool = False
    waits: bool = False

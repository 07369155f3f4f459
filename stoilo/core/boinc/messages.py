"""BOINC's scheduler RPC as records, shared by the volunteer and the embedded project.

The shapes are those of reference/boinc.md §3.3 to §3.5, taken from a real 7.20.5 client
and a server that it accepts. The text is in `wire` and, for the project's half, in
`stoilo.server.engines.embedded.web`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


class ResultState:
    """BOINC's client states in a report (``lib/common_defs.h``)."""

    DOWNLOAD_ERROR = 1
    COMPUTE_ERROR = 3
    UPLOADED = 5
    ABORTED = 6


@dataclass(frozen=True, slots=True)
class ReportedResult:
    """A result that the host has finished."""

    name: str  # BOINC result name
    state: int  # one of `ResultState`; UPLOADED means success
    exit_status: int = 0  # 0, or BOINC's exit code
    cpu_s: float = 0.0  # processor time, s
    elapsed_s: float = 0.0  # elapsed time, s
    stderr: str = ""  # bounded text for the operator, free of paths


@dataclass(frozen=True, slots=True)
class OtherResult:
    """A result that the host holds and has not finished."""

    name: str  # BOINC result name
    fraction_done: float = 0.0  # from 0 to 1; 0 where the host does not know
    cpu_s: float = 0.0  # processor time so far, s; 0 where the host does not say


TOPIC: Final = re.compile(r"[A-Za-z0-9_./+-]{1,64}")  # How a topic is written

MOST_TOPICS: Final = 32  # In one request


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a host asks not to be sent; it would refuse that anyway (ours, not BOINC's)."""

    max_level: str = ""  # highest level, empty for the account's
    require_review: bool = False  # only reviewed tasks
    require_public_source: bool = False  # only tasks of public source
    topics: tuple[str, ...] = ()  # when not empty, only tasks that carry one of these


@dataclass(frozen=True, slots=True)
class ClientVersion:
    """Version of a BOINC client, for example 7.20.5."""

    major: int = 0
    minor: int = 0
    release: int = 0


@dataclass(frozen=True, slots=True)
class HostInfo:
    """What a host says of itself (BOINC's ``host_info``); nothing of it is proven."""

    domain_name: str = ""  # its own name
    vendor: str = ""  # of the processor
    model: str = ""  # of the processor
    features: str = ""  # of the processor, separated by spaces
    fpops: float = 0.0  # benchmark, FLOP/s
    memory_bytes: float = 0.0  # of the machine
    disk_free_bytes: float = 0.0  # where the client keeps its data
    os_name: str = ""  # for example `Linux Debian`
    os_version: str = ""  # of the system


@dataclass(frozen=True, slots=True)
class SchedulerRequest:
    """What a client tells the scheduler."""

    authenticator: str  # the account key. Secret
    host_id: int  # 0 on first contact
    rpc_seqno: int  # grows by one with every request of this host
    cpid: str  # the host's own identity, 32 hex digits
    cpu_req_secs: float = 0.0  # work wanted, s
    cpu_req_instances: float = 0.0  # idle processors
    dont_send_work: bool = False  # report only
    ncpus: int = 1  # processors of the host
    results: tuple[ReportedResult, ...] = ()  # finished results
    other_results: tuple[OtherResult, ...] = ()  # unfinished results
    # the project may hold an empty answer that long for work to come (ours; other
    # servers ignore it)
    wait_s: float = 0.0
    wishes: Wishes = Wishes()  # what not to send
    # the host needs no app version: it runs results by itself (ours)
    own_program: bool = False
    takes_content: bool = False  # the reply may bring small files with it (ours)
    # version of the client; zeros where it says none
    client: ClientVersion = ClientVersion()
    platforms: tuple[str, ...] = ()  # what the host can run, the best first
    host: HostInfo = HostInfo()  # what it says of itself
    # the project's key as the client keeps it, empty before the first
    code_sign_key: str = ""
    # the user's own for every project, as the client sent them: what stands inside the
    # element, hostile, bounded, well formed; empty where it sent none
    global_preferences: str = ""
    sticky_files: tuple[str, ...] = ()  # names of files that it keeps after their task


@dataclass(frozen=True, slots=True)
class FileInfo:
    """An input file: immutable, named for ever, fetched from `url`.

    `mirrors` are URLs to try before it, in order; nobody vouches for what they send.
    `content` is the file itself, where the reply brings it; as little vouched for.
    """

    name: str
    url: str
    nbytes: int
    md5: str
    sticky: bool = False
    mirrors: tuple[str, ...] = ()
    content: bytes = b""


@dataclass(frozen=True, slots=True)
class FileRef:
    """Under which name an application opens a file."""

    file_name: str
    open_name: str


@dataclass(frozen=True, slots=True)
class ProgramFile:
    """A signed file of an app version."""

    info: FileInfo  # where it comes from
    signature: str  # BOINC's, as text of its `.sig` file
    executable: bool = False  # made so by the client
    main: bool = False  # the one that is started
    open_name: str = ""  # under which the slot has it; empty for its own name


@dataclass(frozen=True, slots=True)
class AppVersion:
    """The program of an app on one platform."""

    app: str
    version_num: int
    platform: str
    files: tuple[ProgramFile, ...]


@dataclass(frozen=True, slots=True)
class UserInfo:
    """What the client shows of an account and this host; credit in cobblestones."""

    id: int
    name: str
    created_at: int
    total_credit: float = 0.0
    host_total_credit: float = 0.0


@dataclass(frozen=True, slots=True)
class UploadInfo:
    """The one output file of a result."""

    name: str
    url: str
    max_nbytes: int


@dataclass(frozen=True, slots=True)
class WorkunitInfo:
    """A workunit: app, estimates (FLOP), bounds (bytes; 0: none said) and input files."""

    name: str
    app: str
    fpops_est: float
    fpops_bound: float
    files: tuple[FileRef, ...]
    memory_bound: float = 0.0
    disk_bound: float = 0.0


@dataclass(frozen=True, slots=True)
class ResultInfo:
    """A result handed to this host; the deadline is s since 1970."""

    name: str
    workunit: str
    deadline: int
    upload: str


@dataclass(frozen=True, slots=True)
class SchedulerReply:
    """What the scheduler answers."""

    host_id: int = 0  # the host's new id, 0 when it keeps the one it has
    acks: tuple[str, ...] = ()  # reported results that the project has taken note of
    aborts: tuple[str, ...] = ()  # results that nobody needs any more
    files: tuple[FileInfo, ...] = ()  # input files of the workunits below
    uploads: tuple[UploadInfo, ...] = ()  # output files of the results below
    workunits: tuple[WorkunitInfo, ...] = ()  # what the results below belong to
    # results for this host, new ones and those it had lost
    results: tuple[ResultInfo, ...] = ()
    next_rpc_delay: float = 0.0  # the client shall call again after at most that many s
    request_delay: float = 0.0  # the client shall not call before that many s
    messages: tuple[str, ...] = ()  # text for the user
    bad_key: bool = False  # the account key is unknown
    down: bool = False  # the project is down for maintenance
    # the project holds empty answers when asked to (`wait_s`), so that an idle host may
    # call again at once
    waits: bool = False
    # programs of the apps below; none for hosts with their own
    app_versions: tuple[AppVersion, ...] = ()
    code_sign_key: str = ""  # the project's, for a client that has none
    # the former key's over this one, for one that has that
    code_sign_key_signature: str = ""
    delete_files: tuple[str, ...] = ()  # sticky files that nobody needs any more
    user: UserInfo | None = None  # what to show of the account; None: nothing
    project_preferences: str = ""  # XML elements for the client to keep, empty for none
    # XML elements from another of the user's hosts; empty for none
    global_preferences: str = ""
    # results to drop unless they run already; late ones still count
    aborts_unstarted: tuple[str, ...] = ()

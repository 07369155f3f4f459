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
    """A copy that the host holds and has not finished.

    Attributes:
        name: BOINC result name.
        fraction_done: from 0 to 1; 0 where the host does not know.
    """

    name: str
    fraction_done: float = 0.0


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
class ClientVersion:
    """Version of a BOINC client, for example 7.20.5."""

    major: int = 0
    minor: int = 0
    release: int = 0


@dataclass(frozen=True, slots=True)
class HostInfo:
    """What a host says of itself (BOINC's ``host_info``); nothing of it is proven.

    Attributes:
        domain_name: its own name.
        vendor: of the processor.
        model: of the processor.
        features: of the processor, separated by spaces.
        fpops: benchmark, FLOP/s.
        memory_bytes: of the machine.
        disk_free_bytes: where the client keeps its data.
        os_name: for example ``Linux Debian``.
        os_version: of the system.
        utc_offset_s: time zone, s east of UTC; None: not said.
    """

    domain_name: str = ""
    vendor: str = ""
    model: str = ""
    features: str = ""
    fpops: float = 0.0
    memory_bytes: float = 0.0
    disk_free_bytes: float = 0.0
    os_name: str = ""
    os_version: str = ""
    utc_offset_s: int | None = None


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
        own_program: the host needs no app version: it runs copies by itself (ours).
        client: version of the client; zeros where it says none.
        platforms: what the host can run, the best first.
        host: what it says of itself.
        code_sign_key: the project's key as the client keeps it, empty before the first.
        global_preferences: the user's own for every project, as the client sent them:
            what stands inside the element, hostile, bounded, well formed;
            empty where it sent none.
        sticky_files: names of files that it keeps after their task.
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
    own_program: bool = False
    client: ClientVersion = ClientVersion()
    platforms: tuple[str, ...] = ()
    host: HostInfo = HostInfo()
    code_sign_key: str = ""
    global_preferences: str = ""
    sticky_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FileInfo:
    """An input file: immutable, named for ever, fetched from `url`.

    `mirrors` are URLs to try before it, in order; nobody vouches for what they send.
    """

    name: str
    url: str
    nbytes: int
    md5: str
    sticky: bool = False
    mirrors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FileRef:
    """Under which name an application opens a file."""

    file_name: str
    open_name: str


@dataclass(frozen=True, slots=True)
class ProgramFile:
    """A signed file of an app version.

    Attributes:
        info: where it comes from.
        signature: BOINC's, as text of its ``.sig`` file.
        executable: made so by the client.
        main: the one that is started.
        open_name: under which the slot has it; empty for its own name.
    """

    info: FileInfo
    signature: str
    executable: bool = False
    main: bool = False
    open_name: str = ""


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
    venue: str = ""


@dataclass(frozen=True, slots=True)
class UploadInfo:
    """The one output file of a copy."""

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
        aborts_unstarted: copies to drop unless they run already; late ones still count.
        files: input files of the workunits below.
        uploads: output files of the copies below.
        workunits: what the copies below belong to.
        results: copies for this host, new ones and those it had lost.
        next_rpc_delay: the client shall call again after at most that many s.
        request_delay: the client shall not call before that many s.
        messages: text for the user.
        bad_key: the account key is unknown.
        down: the project is down for maintenance.
        app_versions: programs of the apps below; none for hosts with their own.
        code_sign_key: the project's, for a client that has none.
        code_sign_key_signature: the former key's over this one, for one that has that.
        delete_files: sticky files that nobody needs any more.
        user: what to show of the account; None: nothing.
        project_preferences: XML elements for the client to keep, empty for none.
        global_preferences: XML elements from another of the user's hosts; empty for none.
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
    app_versions: tuple[AppVersion, ...] = ()
    code_sign_key: str = ""
    code_sign_key_signature: str = ""
    delete_files: tuple[str, ...] = ()
    user: UserInfo | None = None
    project_preferences: str = ""
    global_preferences: str = ""
    aborts_unstarted: tuple[str, ...] = ()

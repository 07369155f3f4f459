"""The project's half of BOINC's texts: requests parsed, replies rendered.

Every request is hostile. The shapes are those of reference/boinc.md §3.3 to §3.5.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoilo.core.errors import TrustError
from stoilo.core.limits import BOUNDS
from stoilo.executor.messages import (
    MOST_TOPICS,
    TOPIC,
    OtherResult,
    ReportedResult,
    SchedulerReply,
    SchedulerRequest,
    Wishes,
)
from stoilo.executor.wire import check_name
from stoilo.executor.xmltext import Element, XmlBounds, escape, parse_xml

if TYPE_CHECKING:
    from stoilo.executor.messages import (
        FileInfo,
        ResultInfo,
        UploadInfo,
        WorkunitInfo,
    )

__all__ = [
    "UPLOAD_HEAD_BYTES",
    "SizeQuery",
    "UploadHead",
    "parse_request",
    "parse_upload",
    "render_account",
    "render_account_error",
    "render_config",
    "render_master_page",
    "render_reply",
    "render_upload_reply",
]

REQUEST_BOUNDS = XmlBounds(document_bytes=BOUNDS.scheduler_request_bytes)
UPLOAD_HEAD_BYTES = 16 * 1024
UPLOAD_BOUNDS = XmlBounds(document_bytes=UPLOAD_HEAD_BYTES + 64, elements=64, depth=6)
RESULTS_PER_REQUEST = 1000
STDERR_CHARS = 64 * 1024
API_VERSION = "7.20.5"
_CPID = re.compile(r"[0-9a-zA-Z]{1,64}")
_MD5 = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class SizeQuery:
    """How much of an upload does the project hold?"""

    name: str


@dataclass(frozen=True, slots=True)
class UploadHead:
    """What precedes an upload's raw bytes; `nbytes` is the whole file's size."""

    name: str
    nbytes: int
    md5: str
    offset: int


def parse_request(data: bytes) -> SchedulerRequest:
    """Return a hostile scheduler request.

    Raises:
        TrustError: ``STO-X030`` for anything unreadable or out of bounds.
    """
    root = parse_xml(data, REQUEST_BOUNDS)
    if root.tag != "scheduler_request":
        raise TrustError("STO-X030", "this is not a scheduler request")
    host = root.find("host_info") or Element("host_info")
    others = root.find("other_results") or Element("other_results")
    results, unfinished = root.every("result"), others.every("other_result")
    if len(results) + len(unfinished) > RESULTS_PER_REQUEST:
        raise TrustError("STO-X030", "the request names too many results")
    cpid = host.string("host_cpid")
    if not _CPID.fullmatch(cpid):
        raise TrustError("STO-X030", "the request names no usable host_cpid")
    return SchedulerRequest(
        authenticator=root.string("authenticator"),
        host_id=_natural(root, "hostid"),
        rpc_seqno=_natural(root, "rpc_seqno"),
        cpid=cpid,
        cpu_req_secs=max(0.0, root.number("cpu_req_secs")),
        cpu_req_instances=max(0.0, root.number("cpu_req_instances")),
        dont_send_work=root.flag("dont_send_work"),
        ncpus=max(1, min(4096, host.integer("p_ncpus", 1))),
        results=tuple(_report(item) for item in results),
        other_results=tuple(
            OtherResult(check_name(item.string("name"))) for item in unfinished
        ),
        wait_s=max(0.0, root.number("stoilo_wait")),
        wishes=_wishes(root),
    )


def _wishes(root: Element) -> Wishes:
    """Return what the host asks not to be sent; unreadable wishes are too many."""
    topics = tuple(item.text.strip() for item in root.every("stoilo_topic"))
    if len(topics) > MOST_TOPICS or not all(map(TOPIC.fullmatch, topics)):
        raise TrustError("STO-X030", "the request names unusable topics")
    return Wishes(
        max_level=root.string("stoilo_max_level")[:32],
        require_review=root.flag("stoilo_require_review"),
        require_public_source=root.flag("stoilo_require_public_source"),
        topics=tuple(sorted(set(topics))),
    )


def parse_upload(head: bytes) -> UploadHead | SizeQuery:
    """Return a hostile upload request's head: all up to and including ``<data>``.

    Raises:
        TrustError: ``STO-X030``.
    """
    text, cut, _ = head.partition(b"<data>")
    end = b"</file_upload></data_server_request>" if cut else b""
    root = parse_xml(text + end, UPLOAD_BOUNDS)
    if root.tag != "data_server_request":
        raise TrustError("STO-X030", "this is not an upload")
    if root.find("get_file_size") is not None:
        return SizeQuery(check_name(root.string("get_file_size")))
    upload = root.find("file_upload")
    info = upload.find("file_info") if upload else None
    if upload is None or info is None or not cut:
        raise TrustError("STO-X030", "this upload has no file")
    md5 = upload.string("md5_cksum")
    if not _MD5.fullmatch(md5):
        raise TrustError("STO-X030", "this upload has no usable md5_cksum")
    return UploadHead(
        name=check_name(info.string("name")),
        nbytes=_natural(upload, "nbytes"),
        md5=md5,
        offset=_natural(upload, "offset"),
    )


def render_reply(reply: SchedulerReply, project: str) -> bytes:
    """Return a reply's XML: entities before those who name them."""
    lines = ["<scheduler_reply>", _leaf("project_name", project)]
    if reply.host_id:
        lines.append(_leaf("hostid", reply.host_id))
    lines += [
        f'<message priority="notice">{escape(t)}</message>' for t in reply.messages
    ]
    if reply.bad_key:
        lines.append("<stoilo_bad_key/>")
    if reply.waits:
        lines.append("<stoilo_waits/>")
    for app in sorted({item.app for item in reply.workunits}):
        lines += _app(app)
    lines += [_file(info) for info in reply.files]
    lines += [_workunit(item) for item in reply.workunits]
    lines += [_upload(info) for info in reply.uploads]
    lines += [_result(item) for item in reply.results]
    lines += [f"<result_ack>{_leaf('name', n)}</result_ack>" for n in reply.acks]
    lines += [f"<result_abort>{_leaf('name', n)}</result_abort>" for n in reply.aborts]
    unstarted = "result_abort_if_not_started"
    lines += [
        f"<{unstarted}>{_leaf('name', n)}</{unstarted}>" for n in reply.aborts_unstarted
    ]
    if reply.request_delay:
        lines.append(_leaf("request_delay", f"{reply.request_delay:.3f}"))
    if reply.next_rpc_delay:
        lines.append(_leaf("next_rpc_delay", f"{reply.next_rpc_delay:.3f}"))
    lines += ["<verify_files_on_app_start/>", "</scheduler_reply>", ""]
    return "\n".join(lines).encode()


def render_upload_reply(
    status: int, *, size: int | None = None, why: str = ""
) -> bytes:
    """Return an upload's answer: 0 ok, 1 try again, -1 never."""
    lines = ["<data_server_reply>", _leaf("status", status)]
    if size is not None:
        lines.append(_leaf("file_size", size))
    if why:
        lines.append(_leaf("message", why))
    return "\n".join([*lines, "</data_server_reply>", ""]).encode()


def render_master_page(project: str, scheduler: str, pages: str = "") -> bytes:
    """Return the project's front page; the link has a line of its own.

    Args:
        project: its name.
        scheduler: URL of the scheduler.
        pages: where people read the audit log, empty when there are no pages.
    """
    log = f'<p><a href="{escape(pages)}">The audit log</a></p>' if pages else ""
    return (
        f"<!DOCTYPE html>\n<html><head><title>{escape(project)}</title>\n"
        f'<link rel="boinc_scheduler" href="{escape(scheduler)}">\n'
        f"</head><body><p>{escape(project)}: a stoilo project.</p>{log}</body></html>\n"
    ).encode()


def render_config(project: str, master_url: str) -> bytes:
    """Return what `get_project_config` answers."""
    fields = [
        ("name", project),
        ("master_url", master_url),
        ("web_rpc_url_base", master_url),
        ("min_passwd_length", 6),
        ("sched_stopped", 0),
        ("web_stopped", 0),
    ]
    body = "\n".join(_leaf(tag, value) for tag, value in fields)
    platform = "<platforms><platform>x86_64-pc-linux-gnu</platform></platforms>"
    return f"<project_config>\n{body}\n{platform}\n</project_config>\n".encode()


def render_account(key: str) -> bytes:
    """Return the answer to a successful account call."""
    return f"<account_out>{_leaf('authenticator', key)}</account_out>\n".encode()


def render_account_error(number: int, message: str) -> bytes:
    """Return the answer to a failed account call (BOINC's error numbers)."""
    return (
        f"<error>{_leaf('error_num', number)}{_leaf('error_msg', message)}</error>\n"
    ).encode()


def _natural(element: Element, tag: str) -> int:
    """Return child `tag` as an integer of at least 0; absent is 0."""
    value = element.integer(tag)
    if value < 0:
        raise TrustError("STO-X030", f"<{tag}> is negative")
    return value


def _report(item: Element) -> ReportedResult:
    """Return one finished copy."""
    return ReportedResult(
        name=check_name(item.string("name")),
        state=item.integer("state"),
        exit_status=item.integer("exit_status"),
        cpu_s=max(0.0, item.number("final_cpu_time")),
        elapsed_s=max(0.0, item.number("final_elapsed_time")),
        stderr=item.string("stderr_out", longest=STDERR_CHARS),
    )


def _leaf(tag: str, value: object) -> str:
    """Return one leaf element."""
    return f"<{tag}>{escape(str(value))}</{tag}>"


def _app(app: str) -> list[str]:
    """Return an app and its one version."""
    return [
        f"<app>{_leaf('name', app)}</app>",
        (
            f"<app_version>{_leaf('app_name', app)}<version_num>100</version_num>"
            f"<api_version>{API_VERSION}</api_version></app_version>"
        ),
    ]


def _file(info: FileInfo) -> str:
    """Return one input file."""
    sticky = "<sticky/>" if info.sticky else ""
    return (
        f"<file_info>{_leaf('name', info.name)}{_leaf('url', info.url)}"
        f"{_leaf('nbytes', info.nbytes)}{_leaf('md5_cksum', info.md5)}{sticky}"
        "</file_info>"
    )


def _upload(info: UploadInfo) -> str:
    """Return one output file."""
    return (
        f"<file_info>{_leaf('name', info.name)}{_leaf('max_nbytes', info.max_nbytes)}"
        f"{_leaf('upload_url', info.url)}</file_info>"
    )


def _workunit(item: WorkunitInfo) -> str:
    """Return one workunit."""
    refs = "".join(
        f"<file_ref>{_leaf('file_name', ref.file_name)}"
        f"{_leaf('open_name', ref.open_name)}</file_ref>"
        for ref in item.files
    )
    return (
        f"<workunit>{_leaf('name', item.name)}{_leaf('app_name', item.app)}"
        f"{_leaf('rsc_fpops_est', item.fpops_est)}"
        f"{_leaf('rsc_fpops_bound', item.fpops_bound)}"
        f"<command_line></command_line>{refs}</workunit>"
    )


def _result(item: ResultInfo) -> str:
    """Return one copy."""
    return (
        f"<result>{_leaf('name', item.name)}{_leaf('wu_name', item.workunit)}"
        f"{_leaf('report_deadline', item.deadline)}<report_immediately/>"
        f"<file_ref>{_leaf('file_name', item.upload)}"
        f"<open_name>result</open_name></file_ref></result>"
    )

"""BOINC's scheduler RPC: the volunteer's half of the text.

The shapes are those of reference/boinc.md §3.3 to §3.5, taken from a real 7.20.5 client
and a server that it accepts. The project's half (parsing requests, rendering replies)
is in `stoilo.server.engines.embedded.xml`; both halves share the records of `messages`.
A reply is untrusted: names that become file names are checked here, URLs must stay with
the project, numbers are finite, counts are bounded by the XML reader.
"""

from __future__ import annotations

import re
from urllib.parse import urljoin, urlsplit

from stoilo.core.errors import TrustError, UnreachableError
from stoilo.executor.messages import (
    FileInfo,
    FileRef,
    ReportedResult,
    ResultInfo,
    SchedulerReply,
    SchedulerRequest,
    UploadInfo,
    Wishes,
    WorkunitInfo,
)
from stoilo.executor.xmltext import Element, XmlBounds, escape, parse_xml

__all__ = [
    "CLIENT_VERSION",
    "REPLY_BOUNDS",
    "check_name",
    "find_scheduler",
    "parse_reply",
    "parse_upload_reply",
    "render_request",
    "render_size_query",
    "render_upload_head",
]

CLIENT_VERSION = (7, 20, 5)  # the protocol level that we speak
PLATFORM = "x86_64-pc-linux-gnu"
REPLY_BOUNDS = XmlBounds(document_bytes=4 * 1024 * 1024)
UPLOAD_REPLY_BOUNDS = XmlBounds(document_bytes=64 * 1024, elements=64)
STDERR_CHARS = 4096

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
_MD5 = re.compile(r"[0-9a-f]{32}")
_LINK = re.compile(
    r"<link rel=\"boinc_scheduler\" href=\"([^\"<>\s]{1,220})\"|"
    r"<scheduler>\s*([^<>\s]{1,220})\s*</scheduler>"
)


def check_name(name: str) -> str:
    """Return `name` when it may become a file name, else raise ``STO-X030``."""
    if not _NAME.fullmatch(name) or ".." in name:
        raise TrustError("STO-X030", "a name is not usable as a file name")
    return name


def find_scheduler(page: bytes, master_url: str) -> str:
    """Return the scheduler's URL from the project's master page (untrusted).

    Raises:
        UnreachableError: ``STO-X002`` when the page names none of the same server.
    """
    match = _LINK.search(page[: 64 * 1024].decode("utf-8", "replace"))
    if match is None:
        raise UnreachableError("STO-X002", "the master page names no scheduler")
    return same_origin(master_url, match[1] or match[2], code="STO-X002")


def same_origin(master_url: str, url: str, *, code: str = "STO-X030") -> str:
    """Return `url` made absolute; other schemes, hosts and ports are refused.

    A project can therefore not point its volunteers at services in their own network.
    """
    if not (url.isascii() and url.isprintable()):  # urljoin would drop line ends
        raise TrustError(code, "the project names an unusable URL")
    try:
        absolute = urljoin(master_url, url)
        there, here = urlsplit(absolute), urlsplit(master_url)
        same = (there.scheme, there.hostname, there.port, there.username) == (
            here.scheme,
            here.hostname,
            here.port,
            None,
        )
    except ValueError:
        same = False
    if not same:
        raise TrustError(code, "the project names a URL of another server")
    return absolute


def render_request(request: SchedulerRequest) -> bytes:
    """Return the request's XML, fields in the order of a 7.20.5 client."""
    major, minor, release = CLIENT_VERSION
    head = [
        ("authenticator", request.authenticator),
        ("hostid", request.host_id),
        ("rpc_seqno", request.rpc_seqno),
        ("core_client_major_version", major),
        ("core_client_minor_version", minor),
        ("core_client_release", release),
        ("dont_send_work", int(request.dont_send_work)),
        ("work_req_seconds", f"{request.cpu_req_secs:.6f}"),
        ("cpu_req_secs", f"{request.cpu_req_secs:.6f}"),
        ("cpu_req_instances", f"{request.cpu_req_instances:.6f}"),
        ("platform_name", PLATFORM),
    ]
    head += _wish_fields(request.wishes)
    if request.wait_s:
        head.append(("stoilo_wait", f"{request.wait_s:.3f}"))
    lines = ["<scheduler_request>", *(_leaf(tag, value) for tag, value in head)]
    lines += ["<host_info>", _leaf("host_cpid", request.cpid)]
    lines += [_leaf("p_ncpus", request.ncpus), "</host_info>"]
    lines += [_render_report(result) for result in request.results]
    lines.append("<other_results>")
    lines += [
        f"<other_result>{_leaf('name', other.name)}</other_result>"
        for other in request.other_results
    ]
    lines += ["</other_results>", "</scheduler_request>", ""]
    return "\n".join(lines).encode()


def _wish_fields(wishes: Wishes) -> list[tuple[str, object]]:
    """Return the wishes that differ from none; other servers ignore them."""
    fields: list[tuple[str, object]] = []
    if wishes.max_level:
        fields.append(("stoilo_max_level", wishes.max_level))
    if wishes.require_review:
        fields.append(("stoilo_require_review", 1))
    if wishes.require_public_source:
        fields.append(("stoilo_require_public_source", 1))
    return fields + [("stoilo_topic", topic) for topic in wishes.topics]


def parse_reply(data: bytes, master_url: str) -> SchedulerReply:
    """Return the untrusted reply of the project at `master_url`.

    Raises:
        TrustError: ``STO-X030`` for anything unreadable or inconsistent.
    """
    root = parse_xml(data, REPLY_BOUNDS)
    if root.tag != "scheduler_reply":
        raise TrustError("STO-X030", "this is not a scheduler reply")
    infos = root.every("file_info")
    messages = tuple(item.text[:500] for item in root.every("message"))
    reply = SchedulerReply(
        host_id=root.integer("hostid"),
        acks=_names(root, "result_ack"),
        aborts=_names(root, "result_abort"),
        aborts_unstarted=_names(root, "result_abort_if_not_started"),
        files=tuple(_file(info, master_url) for info in infos if info.find("url")),
        uploads=tuple(
            _upload(info, master_url) for info in infos if info.find("upload_url")
        ),
        workunits=tuple(_workunit(item) for item in root.every("workunit")),
        results=tuple(_result(item) for item in root.every("result")),
        next_rpc_delay=max(0.0, root.number("next_rpc_delay")),
        request_delay=max(0.0, root.number("request_delay")),
        messages=messages,
        bad_key=root.find("stoilo_bad_key") is not None,
        down=root.find("project_is_down") is not None,
        waits=root.find("stoilo_waits") is not None,
    )
    _check_references(reply)
    return reply


def render_size_query(name: str) -> bytes:
    """Return the body that asks how much of upload `name` the project holds."""
    return (
        f"<data_server_request>\n{_versions()}"
        f"<get_file_size>{escape(name)}</get_file_size>\n</data_server_request>\n"
    ).encode()


def render_upload_head(
    upload: UploadInfo, *, nbytes: int, md5: str, offset: int
) -> bytes:
    """Return everything of an upload before its raw bytes."""
    return (
        f"<data_server_request>\n{_versions()}<file_upload>\n<file_info>\n"
        f"<name>{escape(upload.name)}</name>\n<xml_signature>\n</xml_signature>\n"
        f"<max_nbytes>{upload.max_nbytes}</max_nbytes>\n</file_info>\n"
        f"<nbytes>{nbytes}</nbytes>\n<md5_cksum>{md5}</md5_cksum>\n"
        f"<offset>{offset}</offset>\n<data>\n"
    ).encode()


def parse_upload_reply(data: bytes) -> tuple[int, int, str]:
    """Return status (0 ok, 1 transient, -1 permanent), file size held, and message.

    A reply without a status is transient, as for a real client.

    Raises:
        TrustError: ``STO-X030``.
    """
    root = parse_xml(data, UPLOAD_REPLY_BOUNDS)
    return (
        root.integer("status", 1),
        root.integer("file_size"),
        root.string("message", longest=1000),
    )


def _versions() -> str:
    """Return the three version lines of every upload request."""
    major, minor, release = CLIENT_VERSION
    return (
        f"<core_client_major_version>{major}</core_client_major_version>\n"
        f"<core_client_minor_version>{minor}</core_client_minor_version>\n"
        f"<core_client_release>{release}</core_client_release>\n"
    )


def _leaf(tag: str, value: object) -> str:
    """Return one leaf element."""
    return f"<{tag}>{escape(str(value))}</{tag}>"


def _render_report(result: ReportedResult) -> str:
    """Return one finished copy."""
    fields = [
        ("name", result.name),
        ("final_cpu_time", f"{result.cpu_s:.6f}"),
        ("final_elapsed_time", f"{result.elapsed_s:.6f}"),
        ("exit_status", result.exit_status),
        ("state", result.state),
        ("platform", PLATFORM),
        ("version_num", 100),
        ("stderr_out", result.stderr[:STDERR_CHARS]),
    ]
    body = "\n".join(_leaf(tag, value) for tag, value in fields)
    return f"<result>\n{body}\n</result>"


def _names(root: Element, tag: str) -> tuple[str, ...]:
    """Return the names inside every `tag`."""
    return tuple(check_name(item.string("name")) for item in root.every(tag))


def _file(info: Element, master_url: str) -> FileInfo:
    """Return one input file."""
    md5 = info.string("md5_cksum")
    if not _MD5.fullmatch(md5) or info.integer("nbytes", -1) < 0:
        raise TrustError("STO-X030", "a file lacks its size or checksum")
    return FileInfo(
        name=check_name(info.string("name")),
        url=same_origin(master_url, info.string("url")),
        nbytes=info.integer("nbytes"),
        md5=md5,
        sticky=info.flag("sticky"),
    )


def _upload(info: Element, master_url: str) -> UploadInfo:
    """Return one output file."""
    return UploadInfo(
        name=check_name(info.string("name")),
        url=same_origin(master_url, info.string("upload_url")),
        max_nbytes=info.integer("max_nbytes"),
    )


def _workunit(item: Element) -> WorkunitInfo:
    """Return one workunit."""
    return WorkunitInfo(
        name=check_name(item.string("name")),
        app=check_name(item.string("app_name")),
        fpops_est=item.number("rsc_fpops_est"),
        fpops_bound=item.number("rsc_fpops_bound"),
        files=tuple(
            FileRef(check_name(ref.string("file_name")), ref.string("open_name"))
            for ref in item.every("file_ref")
        ),
    )


def _result(item: Element) -> ResultInfo:
    """Return one copy."""
    ref = item.find("file_ref")
    if ref is None:
        raise TrustError("STO-X030", "a result names no output file")
    return ResultInfo(
        name=check_name(item.string("name")),
        workunit=check_name(item.string("wu_name")),
        deadline=item.integer("report_deadline"),
        upload=check_name(ref.string("file_name")),
    )


def _check_references(reply: SchedulerReply) -> None:
    """Raise unless every name that the reply uses is explained by it."""
    files = {info.name for info in reply.files}
    uploads = {info.name for info in reply.uploads}
    workunits = {item.name for item in reply.workunits}
    complete = all(
        result.workunit in workunits and result.upload in uploads
        for result in reply.results
    ) and all(ref.file_name in files for item in reply.workunits for ref in item.files)
    if not complete:
        raise TrustError("STO-X030", "the reply uses names that it does not explain")

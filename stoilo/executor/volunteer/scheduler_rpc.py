"""BOINC's scheduler RPC and uploads: the volunteer's half of the text. Pure.

The shapes are those of reference/boinc.md §3.3 to §3.5, taken from a real 7.20.5 client and a
server that it accepts; the project's half is in the embedded engine, and both share the records
of `core.boinc.messages`. A reply is untrusted: names that become file names are checked, URLs
must stay with the project, numbers are finite, counts are bounded.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import replace
from platform import machine
from typing import Final

from stoilo.core.boinc.messages import (
    AppVersion,
    ClientVersion,
    FileInfo,
    FileRef,
    OtherResult,
    ProgramFile,
    ReportedResult,
    ResultInfo,
    SchedulerReply,
    SchedulerRequest,
    UploadInfo,
    UserInfo,
    WorkunitInfo,
)
from stoilo.core.boinc.xml import (
    Element,
    XmlBounds,
    element,
    escape,
    leaf,
    parse_xml,
    render_xml,
)
from stoilo.core.errors import TrustError
from stoilo.executor.volunteer.addresses import check_name, may_ask, same_origin

REPLY_BOUNDS: Final = XmlBounds(document_bytes=4 * 1024 * 1024)
MOST_RESULTS: Final = 1000
MOST_APP_VERSIONS: Final = 64
MOST_PROGRAM_FILES: Final = 16
MOST_URLS: Final = 16
MOST_DELETIONS: Final = 1000
MOST_MESSAGES: Final = 20
MESSAGE_CHARS: Final = 500
PREFERENCES_CHARS: Final = 64 * 1024
KEY_CHARS: Final = 4096
SHOWN_CHARS: Final = 254
_MD5 = re.compile(r"[0-9a-f]{32}")


def parse_reply(data: bytes, master_url: str) -> SchedulerReply:
    """Return the untrusted reply of the project at `master_url`.

    Raises:
        TrustError: ``STO-X030`` for anything unreadable, inconsistent or too much.
    """
    root = parse_xml(data, REPLY_BOUNDS)
    if root.tag != "scheduler_reply":
        raise TrustError("STO-X030", "this is not a scheduler reply")
    infos = root.every("file_info")
    signed = [
        info for info in infos if info.find("file_signature") and info.find("url")
    ]
    programs = {info.string("name"): _program_file(info, master_url) for info in signed}
    reply = SchedulerReply(
        host_id=root.integer("hostid"),
        acks=_names(root, "result_ack"),
        aborts=_names(root, "result_abort"),
        aborts_unstarted=_names(root, "result_abort_if_not_started"),
        files=tuple(_file(info, master_url) for info in infos if _is_input(info)),
        uploads=tuple(
            _upload(info, master_url) for info in infos if info.find("upload_url")
        ),
        workunits=tuple(_workunit(item) for item in root.every("workunit")),
        results=tuple(_result(item) for item in _few(root, "result", MOST_RESULTS)),
        next_rpc_delay=max(0.0, root.number("next_rpc_delay")),
        request_delay=max(0.0, root.number("request_delay")),
        messages=tuple(
            item.text[:MESSAGE_CHARS] for item in root.every("message")[:MOST_MESSAGES]
        ),
        bad_key=root.find("stoilo_bad_key") is not None,
        down=root.find("project_is_down") is not None,
        waits=root.find("stoilo_waits") is not None,
        # A version without files is none.
        app_versions=tuple(
            _app_version(item, programs)
            for item in _few(root, "app_version", MOST_APP_VERSIONS)
            if item.find("file_ref")
        ),
        code_sign_key=_key_text(root, "code_sign_key"),
        code_sign_key_signature=_key_text(root, "code_sign_key_signature"),
        delete_files=tuple(
            check_name(item.text)
            for item in _few(root, "delete_file_info", MOST_DELETIONS)
        ),
        user=_user(root),
        project_preferences=_preferences(root, "project_preferences"),
    )
    _check_references(reply)
    return reply


def _few(element: Element, tag: str, most: int) -> tuple[Element, ...]:
    """Return all children called `tag`; more than `most` refuse."""
    found = element.every(tag)
    if len(found) > most:
        raise TrustError("STO-X030", f"the reply holds more than {most} <{tag}>")
    return found


def _names(root: Element, tag: str) -> tuple[str, ...]:
    return tuple(check_name(item.string("name")) for item in root.every(tag))


def _is_input(info: Element) -> bool:
    """Whether a file is a workunit's: fetched, and not signed as a program's is."""
    return info.find("url") is not None and info.find("file_signature") is None


def _file(info: Element, master_url: str) -> FileInfo:
    """Return one file; a program's signature stands for its checksum."""
    md5 = info.string("md5_cksum")
    known = _MD5.fullmatch(md5) or (not md5 and info.find("file_signature"))
    if not known or info.integer("nbytes", -1) < 0:
        raise TrustError("STO-X030", "a file lacks its size or checksum")
    name = check_name(info.string("name"))
    *mirrors, url = (one.text for one in _few(info, "url", MOST_URLS))
    return FileInfo(
        name=name,
        url=same_origin(master_url, url),
        nbytes=info.integer("nbytes"),
        md5=md5,
        sticky=info.flag("sticky"),
        mirrors=tuple(one for one in mirrors if may_ask(master_url, one, name)),
        content=_content(info),
    )


def _content(info: Element) -> bytes:
    text = info.string("stoilo_content", longest=REPLY_BOUNDS.document_bytes)
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise TrustError("STO-X030", "a file's content is no base64") from None


def _program_file(info: Element, master_url: str) -> ProgramFile:
    return ProgramFile(
        info=_file(info, master_url),
        signature=_key_text(info, "file_signature"),
        executable=info.flag("executable"),
    )


def _app_version(item: Element, programs: dict[str, ProgramFile]) -> AppVersion:
    refs = _few(item, "file_ref", MOST_PROGRAM_FILES)
    platform = item.string("platform")
    return AppVersion(
        app=check_name(item.string("app_name")),
        version_num=item.integer("version_num"),
        platform=check_name(platform) if platform else "",
        files=tuple(_referred(ref, programs) for ref in refs),
    )


def _referred(ref: Element, programs: dict[str, ProgramFile]) -> ProgramFile:
    open_name = ref.string("open_name")
    known = programs.get(ref.string("file_name"))
    if known is None:
        raise TrustError("STO-X030", "an app version names a file without signature")
    return replace(
        known,
        main=ref.flag("main_program"),
        open_name=check_name(open_name) if open_name else "",
    )


def _key_text(element: Element, tag: str) -> str:
    """Return a key's or signature's text, one spelling of its line ends; "" if none."""
    lines = element.string(tag, longest=KEY_CHARS).split("\n")
    text = "\n".join(line.strip() for line in lines)
    return f"{text}\n" if text else ""


def _preferences(root: Element, tag: str) -> str:
    found = root.find(tag)
    text = "".join(map(render_xml, found.children)) if found is not None else ""
    if len(text) > PREFERENCES_CHARS:
        raise TrustError("STO-X030", f"<{tag}> is too large")
    return text


def _user(root: Element) -> UserInfo | None:
    """Return what is shown of the account, None where the reply does not say."""
    if root.find("user_name") is None and root.find("userid") is None:
        return None
    return UserInfo(
        id=root.integer("userid"),
        name=_shown(root, "user_name"),
        created_at=root.integer("user_create_time"),
        total_credit=root.number("user_total_credit"),
        host_total_credit=root.number("host_total_credit"),
    )


def _shown(root: Element, tag: str) -> str:
    found = root.find(tag)
    return found.text[:SHOWN_CHARS] if found is not None else ""


def _upload(info: Element, master_url: str) -> UploadInfo:
    return UploadInfo(
        name=check_name(info.string("name")),
        url=same_origin(master_url, info.string("upload_url")),
        max_nbytes=info.integer("max_nbytes"),
    )


def _workunit(item: Element) -> WorkunitInfo:
    return WorkunitInfo(
        name=check_name(item.string("name")),
        app=check_name(item.string("app_name")),
        fpops_est=item.number("rsc_fpops_est"),
        fpops_bound=item.number("rsc_fpops_bound"),
        files=tuple(
            FileRef(check_name(ref.string("file_name")), ref.string("open_name"))
            for ref in item.every("file_ref")
        ),
        memory_bound=item.number("rsc_memory_bound"),
        disk_bound=item.number("rsc_disk_bound"),
    )


def _result(item: Element) -> ResultInfo:
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
    files = {info.name for info in reply.files}
    uploads = {info.name for info in reply.uploads}
    workunits = {item.name for item in reply.workunits}
    complete = all(
        result.workunit in workunits and result.upload in uploads
        for result in reply.results
    ) and all(ref.file_name in files for item in reply.workunits for ref in item.files)
    if not complete:
        raise TrustError("STO-X030", "the reply uses names that it does not explain")


CLIENT_VERSION = ClientVersion(7, 20, 5)
"""The protocol level that we speak."""

BOINC_PLATFORMS = {
    "x86_64-linux": "x86_64-pc-linux-gnu",
    "aarch64-linux": "aarch64-unknown-linux-gnu",
}
"""Our name of a platform → BOINC's."""

PLATFORM = BOINC_PLATFORMS.get(f"{machine()}-linux", machine())
"""Of this computer; where no program exists for it, a project has none to send."""

STDERR_CHARS = 4096


def render_request(request: SchedulerRequest) -> bytes:
    """Return the request's XML, fields in the order of a 7.20.5 client."""
    key = escape(request.code_sign_key)
    lines = [
        "<scheduler_request>",
        leaf("authenticator", request.authenticator),
        leaf("hostid", request.host_id),
        leaf("rpc_seqno", request.rpc_seqno),
        *render_version(request.client),
        leaf("dont_send_work", int(request.dont_send_work)),
        leaf("work_req_seconds", f"{request.cpu_req_secs:.6f}"),
        leaf("cpu_req_secs", f"{request.cpu_req_secs:.6f}"),
        leaf("cpu_req_instances", f"{request.cpu_req_instances:.6f}"),
        *_own_fields(request),
        *(leaf("platform_name", name) for name in request.platforms[:1]),
        *(element("alt_platform", name=name) for name in request.platforms[1:]),
        *([f"<code_sign_key>\n{key}</code_sign_key>"] if key else []),
        _host_info(request),
        *map(_report, request.results),
        *(element("file_info", name=name) for name in request.sticky_files),
        "<other_results>",
        *map(_other_result, request.other_results),
        "</other_results>",
        "</scheduler_request>",
        "",
    ]
    return "\n".join(lines).encode()


def render_version(client: ClientVersion) -> list[str]:
    """Return the lines that say which protocol a client speaks."""
    return [
        leaf("core_client_major_version", client.major),
        leaf("core_client_minor_version", client.minor),
        leaf("core_client_release", client.release),
    ]


def _own_fields(request: SchedulerRequest) -> list[str]:
    """Return what only our projects understand; others ignore it."""
    wishes = request.wishes
    fields: dict[str, object] = {
        "stoilo_max_level": wishes.max_level,
        "stoilo_require_review": int(wishes.require_review),
        "stoilo_require_public_source": int(wishes.require_public_source),
        "stoilo_wait": f"{request.wait_s:.3f}" if request.wait_s else "",
        "stoilo_own_program": int(request.own_program),
        "stoilo_takes_content": int(request.takes_content),
    }
    said = [leaf(tag, value) for tag, value in fields.items() if value]
    return said + [leaf("stoilo_topic", topic) for topic in wishes.topics]


def _host_info(request: SchedulerRequest) -> str:
    host = request.host
    fields: dict[str, object] = {
        "domain_name": host.domain_name,
        "host_cpid": request.cpid,
        "p_ncpus": request.ncpus,
        "p_vendor": host.vendor,
        "p_model": host.model,
        "p_features": host.features,
        "p_fpops": host.fpops,
        "m_nbytes": host.memory_bytes,
        "d_free": host.disk_free_bytes,
        "os_name": host.os_name,
        "os_version": host.os_version,
    }
    said = {tag: value for tag, value in fields.items() if value}
    return _lines("host_info", said)


def _lines(tag: str, leaves: Mapping[str, object]) -> str:
    """Return an element with a line for each leaf: BOINC reads some of them by line."""
    body = [leaf(name, value) for name, value in leaves.items()]
    return "\n".join([f"<{tag}>", *body, f"</{tag}>"])


def _other_result(other: OtherResult) -> str:
    # Ours: a stock server passes them over.
    fields = {"fraction_done": other.fraction_done, "current_cpu_time": other.cpu_s}
    said = {tag: f"{value:.6f}" for tag, value in fields.items() if value}
    return element("other_result", name=other.name, **said)


def _report(result: ReportedResult) -> str:
    fields = {
        "name": result.name,
        "final_cpu_time": f"{result.cpu_s:.6f}",
        "final_elapsed_time": f"{result.elapsed_s:.6f}",
        "exit_status": result.exit_status,
        "state": result.state,
        "platform": PLATFORM,
        "version_num": 100,
        "stderr_out": result.stderr[:STDERR_CHARS],
    }
    return _lines("result", fields)

"""BOINC's scheduler RPC and uploads: the volunteer's half of the text. Pure.

The shapes are those of reference/boinc.md §3.3 to §3.5, taken from a real 7.20.5 client and a
server that it accepts; the project's half is in the embedded engine, and both share the records
of `core.boinc.messages`. A reply is untrusted: names that become file names are checked, URLs
must stay with the project, numbers are finite, counts are bounded.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from platform import machine
from typing import Final
from urllib.parse import urljoin, urlsplit

from stoilo.core.boinc.messages import (
    AppVersion,
    ClientVersion,
    FileInfo,
    FileRef,
    HostInfo,
    OtherResult,
    ProgramFile,
    ReportedResult,
    ResultInfo,
    SchedulerReply,
    SchedulerRequest,
    UploadInfo,
    UserInfo,
    Wishes,
    WorkunitInfo,
)
from stoilo.core.boinc.xml import Element, XmlBounds, escape, parse_xml, render_xml
from stoilo.core.errors import TrustError, UnreachableError

PAGE_CHARS: Final = 64 * 1024
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MIRROR = re.compile(
    r"https?://[A-Za-z0-9.-]{1,100}(?::[0-9]{1,5})?/[A-Za-z0-9._~/-]{1,200}"
)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
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
        UnreachableError: ``STO-X001`` when the page names none of the same server.
    """
    match = _LINK.search(page[:PAGE_CHARS].decode("utf-8", "replace"))
    if match is None:
        raise UnreachableError("STO-X001", "the master page names no scheduler")
    return same_origin(master_url, match[1] or match[2], code="STO-X001")


def may_ask(master_url: str, url: str, name: str) -> bool:
    """Say whether a file may be asked for at a mirror that the project names.

    Only what is named by its SHA-256, so that nothing of a mirror is believed; only by
    a URL that ends with that name; never by another spelling of an address than its
    usual one (``127.1``, ``0x7f.1``); and, unless the project itself is there, not where
    an address says that it is somebody's own network. Names are not resolved.
    """
    if not (_DIGEST.fullmatch(name) and _MIRROR.fullmatch(url)):
        return False
    if not url.endswith(f"/{name}") or ".." in url:
        return False
    there, here = urlsplit(url), urlsplit(master_url)
    if there.scheme == "http" and here.scheme == "https":
        return False
    host = there.hostname or ""
    if _is_odd(host):
        return False
    return not _is_inside(host) or _is_inside(here.hostname or "")


def _is_odd(host: str) -> bool:
    """Say whether a host is a number that resolvers read and `ip_address` does not.

    No name of the open Internet ends with a number, so none is lost.
    """
    try:
        ip_address(host)
    except ValueError:
        return bool(_NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]))
    return False


def _is_inside(host: str) -> bool:
    try:
        return not ip_address(host).is_global
    except ValueError:
        return "." not in host.rstrip(".") or host.rstrip(".").endswith(
            (".local", ".localhost", ".internal")
        )


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
    programs = {
        file.info.name: file
        for file in (
            _program_file(info, master_url)
            for info in infos
            if info.find("file_signature") is not None
        )
    }
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
        app_versions=_app_versions(root, programs),
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
    md5 = info.string("md5_cksum")
    if not _MD5.fullmatch(md5) or info.integer("nbytes", -1) < 0:
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
    )


def _program_file(info: Element, master_url: str) -> ProgramFile:
    """Return one file of an app version; its signature stands for a checksum."""
    md5 = info.string("md5_cksum")
    if (md5 and not _MD5.fullmatch(md5)) or info.integer("nbytes", -1) < 0:
        raise TrustError("STO-X030", "a program file lacks its size")
    return ProgramFile(
        info=FileInfo(
            name=check_name(info.string("name")),
            url=same_origin(master_url, info.string("url")),
            nbytes=info.integer("nbytes"),
            md5=md5,
            sticky=info.flag("sticky"),
        ),
        signature=_key_text(info, "file_signature"),
        executable=info.flag("executable"),
    )


def _app_versions(
    root: Element, programs: dict[str, ProgramFile]
) -> tuple[AppVersion, ...]:
    """Return the programs of the apps; a version without files is none."""
    found = _few(root, "app_version", MOST_APP_VERSIONS)
    return tuple(
        _app_version(item, programs) for item in found if item.find("file_ref")
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
    return ProgramFile(
        info=known.info,
        signature=known.signature,
        executable=known.executable,
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
        venue=_shown(root, "host_venue"),
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

UPLOAD_REPLY_BOUNDS = XmlBounds(document_bytes=64 * 1024, elements=64)
STDERR_CHARS = 4096

Field = tuple[str, object]
"""A leaf element: tag and text."""


def render_request(request: SchedulerRequest) -> bytes:
    """Return the request's XML, fields in the order of a 7.20.5 client."""
    head: list[Field] = [
        ("authenticator", request.authenticator),
        ("hostid", request.host_id),
        ("rpc_seqno", request.rpc_seqno),
        ("core_client_major_version", request.client.major),
        ("core_client_minor_version", request.client.minor),
        ("core_client_release", request.client.release),
        ("dont_send_work", int(request.dont_send_work)),
        ("work_req_seconds", f"{request.cpu_req_secs:.6f}"),
        ("cpu_req_secs", f"{request.cpu_req_secs:.6f}"),
        ("cpu_req_instances", f"{request.cpu_req_instances:.6f}"),
    ]
    lines = ["<scheduler_request>", *_leaves([*head, *_own_fields(request)])]
    lines += _platforms(request.platforms)
    if request.code_sign_key:
        lines.append(
            f"<code_sign_key>\n{escape(request.code_sign_key)}</code_sign_key>"
        )
    lines += _host_info(request)
    lines += [_render_report(result) for result in request.results]
    lines += [
        f"<file_info>{_leaf('name', name)}</file_info>" for name in request.sticky_files
    ]
    lines.append("<other_results>")
    lines += [_other_result(other) for other in request.other_results]
    lines += ["</other_results>", "</scheduler_request>", ""]
    return "\n".join(lines).encode()


def _own_fields(request: SchedulerRequest) -> list[Field]:
    """Return what only our projects understand; others ignore it."""
    fields = _wish_fields(request.wishes)
    if request.wait_s:
        fields.append(("stoilo_wait", f"{request.wait_s:.3f}"))
    if request.own_program:
        fields.append(("stoilo_own_program", 1))
    return fields


def _wish_fields(wishes: Wishes) -> list[Field]:
    fields: list[Field] = []
    if wishes.max_level:
        fields.append(("stoilo_max_level", wishes.max_level))
    if wishes.require_review:
        fields.append(("stoilo_require_review", 1))
    if wishes.require_public_source:
        fields.append(("stoilo_require_public_source", 1))
    return fields + [("stoilo_topic", topic) for topic in wishes.topics]


def _platforms(platforms: tuple[str, ...]) -> list[str]:
    first = [_leaf("platform_name", name) for name in platforms[:1]]
    rest = [
        f"<alt_platform>{_leaf('name', name)}</alt_platform>" for name in platforms[1:]
    ]
    return first + rest


def _host_info(request: SchedulerRequest) -> list[str]:
    unsaid = HostInfo()
    fields: list[Field] = [
        ("domain_name", request.host.domain_name),
        ("host_cpid", request.cpid),
        ("p_ncpus", request.ncpus),
        ("p_vendor", request.host.vendor),
        ("p_model", request.host.model),
        ("p_features", request.host.features),
        ("p_fpops", request.host.fpops),
        ("m_nbytes", request.host.memory_bytes),
        ("d_free", request.host.disk_free_bytes),
        ("os_name", request.host.os_name),
        ("os_version", request.host.os_version),
    ]
    silent = (unsaid.domain_name, unsaid.fpops)
    said = [(tag, value) for tag, value in fields if value not in silent]
    return ["<host_info>", *_leaves(said), "</host_info>"]


def _other_result(other: OtherResult) -> str:
    fields: list[Field] = [("name", other.name)]
    if other.fraction_done:  # ours: a stock server passes it over
        fields.append(("fraction_done", f"{other.fraction_done:.6f}"))
    return f"<other_result>{''.join(_leaves(fields))}</other_result>"


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
    return (
        f"<core_client_major_version>{CLIENT_VERSION.major}</core_client_major_version>\n"
        f"<core_client_minor_version>{CLIENT_VERSION.minor}</core_client_minor_version>\n"
        f"<core_client_release>{CLIENT_VERSION.release}</core_client_release>\n"
    )


def _leaf(tag: str, value: object) -> str:
    return f"<{tag}>{escape(str(value))}</{tag}>"


def _leaves(fields: list[Field]) -> list[str]:
    return [_leaf(tag, value) for tag, value in fields]


def _render_report(result: ReportedResult) -> str:
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

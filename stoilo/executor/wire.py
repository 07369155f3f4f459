"""BOINC's scheduler RPC and uploads: the volunteer's half of the text.

The shapes are those of reference/boinc.md §3.3 to §3.5, taken from a real 7.20.5 client
and a server that it accepts. The project's half (parsing requests, rendering replies)
is `server.engines.embedded.web.messages`; both halves share the records of `messages`.
A reply is untrusted: names that become file names are checked (`addresses`), URLs must
stay with the project, numbers are finite, counts are bounded (`replies`).
"""

from __future__ import annotations

from platform import machine

from stoilo.executor.addresses import check_name, find_scheduler, same_origin
from stoilo.executor.messages import (
    ClientVersion,
    HostInfo,
    OtherResult,
    ReportedResult,
    SchedulerRequest,
    UploadInfo,
    Wishes,
)
from stoilo.executor.replies import REPLY_BOUNDS, parse_reply
from stoilo.executor.xmltext import XmlBounds, escape, parse_xml

__all__ = [
    "BOINC_PLATFORMS",
    "CLIENT_VERSION",
    "PLATFORM",
    "REPLY_BOUNDS",
    "check_name",
    "find_scheduler",
    "parse_reply",
    "parse_upload_reply",
    "render_request",
    "render_size_query",
    "render_upload_head",
    "same_origin",
]

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
    if request.global_preferences:  # the user's own XML, as it was read
        lines.append(request.global_preferences)
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
    """Return the wishes that differ from none."""
    fields: list[Field] = []
    if wishes.max_level:
        fields.append(("stoilo_max_level", wishes.max_level))
    if wishes.require_review:
        fields.append(("stoilo_require_review", 1))
    if wishes.require_public_source:
        fields.append(("stoilo_require_public_source", 1))
    return fields + [("stoilo_topic", topic) for topic in wishes.topics]


def _platforms(platforms: tuple[str, ...]) -> list[str]:
    """Return the first platform as ours, the others as possible too."""
    first = [_leaf("platform_name", name) for name in platforms[:1]]
    rest = [
        f"<alt_platform>{_leaf('name', name)}</alt_platform>" for name in platforms[1:]
    ]
    return first + rest


def _host_info(request: SchedulerRequest) -> list[str]:
    """Return the host's own description, leaving out what it does not say."""
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
    """Return one unfinished copy."""
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
    """Return the three version lines of every upload request."""
    return (
        f"<core_client_major_version>{CLIENT_VERSION.major}</core_client_major_version>\n"
        f"<core_client_minor_version>{CLIENT_VERSION.minor}</core_client_minor_version>\n"
        f"<core_client_release>{CLIENT_VERSION.release}</core_client_release>\n"
    )


def _leaf(tag: str, value: object) -> str:
    """Return one leaf element."""
    return f"<{tag}>{escape(str(value))}</{tag}>"


def _leaves(fields: list[Field]) -> list[str]:
    """Return leaf elements, a line each."""
    return [_leaf(tag, value) for tag, value in fields]


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

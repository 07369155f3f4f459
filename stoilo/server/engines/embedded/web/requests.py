"""A scheduler request, parsed: hostile text of any client.

The shape is that of reference/boinc.md §3.3, taken from a 7.20.5 client. Unknown elements
are ignored, measured numbers that make no sense count as nothing, texts are cut; what the
project acts on (names, counts, who calls) is checked and refused.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoilo.core.boinc.messages import (
    MOST_TOPICS,
    TOPIC,
    ClientVersion,
    HostInfo,
    OtherResult,
    ReportedResult,
    SchedulerRequest,
    Wishes,
)
from stoilo.core.boinc.xml import Element, XmlBounds, escape, parse_xml
from stoilo.core.errors import TrustError
from stoilo.core.types import BOUNDS
from stoilo.executor.volunteer.addresses import check_name
from stoilo.server.engines.embedded.workunits.uploads import UploadHead

if TYPE_CHECKING:
    from collections.abc import Sequence

REQUEST_BOUNDS = XmlBounds(document_bytes=BOUNDS.scheduler_request_bytes)
PREFERENCES_BOUNDS = XmlBounds(document_bytes=16 * 1024, elements=1024)
RESULTS_PER_REQUEST = 1000
STDERR_CHARS = 64 * 1024
# Of what a program wrote, its end: escaped it must not make a request too large
STDERR_KEPT = 2048
KEY_CHARS = 4096
MOST_PLATFORMS = 16
FILE_PRESENT = 1  # BOINC's status; others are on their way or failed
MOST_STICKY = 10_000
MOST_PROCESSORS = 4096
_CPID = re.compile(r"[0-9a-zA-Z]{1,64}")
_CHECKSUM = re.compile(r"[0-9a-f]{32}|[0-9a-f]{64}")
_LARGEST = 1e18
_PREFERENCES = (b"<global_preferences>", b"</global_preferences>")
_WORKING_END = b"</working_global_preferences>"
_STDERR = (b"<stderr_out>", b"</stderr_out>")
_CDATA = (b"<![CDATA[", b"]]>")


def parse_request(data: bytes) -> SchedulerRequest:
    """Return a hostile scheduler request.

    Raises:
        TrustError: ``STO-X030`` for anything unreadable or out of bounds.
    """
    if len(data) > REQUEST_BOUNDS.document_bytes:
        raise _unreadable("the document is too large")
    root = parse_xml(_with_plain_stderr(data), REQUEST_BOUNDS)
    if root.tag != "scheduler_request":
        raise _unreadable("this is not a scheduler request")
    host = root.find("host_info") or Element("host_info")
    others = root.find("other_results") or Element("other_results")
    results, unfinished = root.every("result"), others.every("other_result")
    if len(results) + len(unfinished) > RESULTS_PER_REQUEST:
        raise _unreadable("the request names too many results")
    cpid = host.string("host_cpid")
    if not _CPID.fullmatch(cpid):
        raise _unreadable("the request names no usable host_cpid")
    platforms = (root, *root.every("alt_platform")[:MOST_PLATFORMS])
    tags = ("platform_name", *["name"] * MOST_PLATFORMS)
    named = [_cut(one, tag, 64) for one, tag in zip(platforms, tags, strict=False)]
    return SchedulerRequest(
        authenticator=root.string("authenticator"),
        host_id=natural(root, "hostid"),
        rpc_seqno=natural(root, "rpc_seqno"),
        cpid=cpid,
        cpu_req_secs=max(0.0, root.number("cpu_req_secs")),
        cpu_req_instances=max(0.0, root.number("cpu_req_instances")),
        dont_send_work=root.flag("dont_send_work"),
        ncpus=int(max(1, min(MOST_PROCESSORS, _measure(host, "p_ncpus")))),
        results=_reports(results),
        other_results=tuple(
            OtherResult(
                check_name(item.string("name")),
                min(1.0, _measure(item, "fraction_done")),
                _measure(item, "current_cpu_time"),
            )
            for item in unfinished
        ),
        wait_s=max(0.0, root.number("stoilo_wait")),
        wishes=_wishes(root),
        own_program=root.flag("stoilo_own_program"),
        takes_content=root.flag("stoilo_takes_content"),
        client=ClientVersion(
            natural(root, "core_client_major_version"),
            natural(root, "core_client_minor_version"),
            natural(root, "core_client_release"),
        ),
        platforms=tuple(dict.fromkeys(filter(None, named))),
        host=_host(host),
        code_sign_key=root.string("code_sign_key", longest=KEY_CHARS),
        global_preferences=_preferences(data, root),
        sticky_files=_sticky(root.every("file_info")),
    )


def _unreadable(why: str) -> TrustError:
    return TrustError("STO-X030", why)


def natural(element: Element, tag: str) -> int:
    """Return child `tag` as an integer of at least 0; absent is 0."""
    value = element.integer(tag)
    if value < 0:
        raise _unreadable(f"<{tag}> is negative")
    return value


def _wishes(root: Element) -> Wishes:
    """Return what the host asks not to be sent; unreadable wishes are too many."""
    topics = tuple(item.text.strip() for item in root.every("stoilo_topic"))
    if len(topics) > MOST_TOPICS or not all(map(TOPIC.fullmatch, topics)):
        raise _unreadable("the request names unusable topics")
    return Wishes(
        max_level=root.string("stoilo_max_level")[:32],
        require_review=root.flag("stoilo_require_review"),
        require_public_source=root.flag("stoilo_require_public_source"),
        topics=tuple(sorted(set(topics))),
    )


def _host(host: Element) -> HostInfo:
    return HostInfo(
        domain_name=_cut(host, "domain_name", 254),
        vendor=_cut(host, "p_vendor", 254),
        model=_cut(host, "p_model", 254),
        fpops=_measure(host, "p_fpops"),
        memory_bytes=_measure(host, "m_nbytes"),
        disk_free_bytes=_measure(host, "d_free"),
        os_name=_cut(host, "os_name", 254),
        os_version=_cut(host, "os_version", 254),
    )


def _reports(items: Sequence[Element]) -> tuple[ReportedResult, ...]:
    """Return reports, the first of each result."""
    found: dict[str, ReportedResult] = {}
    for item in items:
        name = check_name(item.string("name"))
        report = ReportedResult(
            name=name,
            state=item.integer("state"),
            exit_status=item.integer("exit_status"),
            cpu_s=_measure(item, "final_cpu_time"),
            elapsed_s=_measure(item, "final_elapsed_time"),
            stderr=_cut(item, "stderr_out", STDERR_CHARS),
        )
        found.setdefault(name, report)
    return tuple(found.values())


def _sticky(infos: Sequence[Element]) -> tuple[str, ...]:
    """Return the names of files that the host has; unusable ones are not ours."""
    names: dict[str, None] = {}
    for info in infos[:MOST_STICKY]:
        try:
            if info.integer("status", FILE_PRESENT) == FILE_PRESENT:
                names[check_name(info.string("name"))] = None
        except TrustError:
            continue
    return tuple(names)


def _cut(element: Element, tag: str, longest: int) -> str:
    """Return the beginning of child `tag`'s text, the end of what a program wrote."""
    child = element.find(tag)
    text = child.text if child is not None else ""
    return text[-longest:] if tag == "stderr_out" else text[:longest]


def _measure(element: Element, tag: str) -> float:
    """Return child `tag` as a number of at least 0; what is no such number is 0."""
    try:
        value = float(_cut(element, tag, 64) or "0")
    except ValueError:
        return 0.0
    return value if math.isfinite(value) and 0 <= value <= _LARGEST else 0.0


def _preferences(data: bytes, root: Element) -> str:
    """Return what stands inside ``<global_preferences>``, as it was sent.

    It goes out again to the user's other hosts, so it must be whole by itself; if it is
    not, or too long, there is none.
    """
    if root.find("global_preferences") is None:
        return ""
    # a client sends the preferences in use before those that it has been told
    begin = data.find(_PREFERENCES[0], max(data.rfind(_WORKING_END), 0))
    end = data.find(_PREFERENCES[1], max(begin, 0))
    if begin < 0 or end < 0:
        return ""
    inside = data[begin + len(_PREFERENCES[0]) : end]
    try:
        parse_xml(b"<all>" + inside + b"</all>", PREFERENCES_BOUNDS)
    except TrustError:
        return ""
    return inside.decode("utf-8", "replace").strip()


def _with_plain_stderr(data: bytes) -> bytes:
    """Return the request with each ``<stderr_out>`` as plain character data.

    A client puts what an application has written into a CDATA section as it is. Whatever
    was in there, the result must be reported: else the client tries for ever.
    """
    pieces: list[bytes] = []
    at = 0
    while (begin := data.find(_STDERR[0], at)) >= 0:
        end = data.find(_STDERR[1], begin)
        if end < 0:
            break
        begin += len(_STDERR[0])
        pieces += [data[at:begin], _plain(data[begin:end])]
        at = end
    return b"".join([*pieces, data[at:]])


def _plain(text: bytes) -> bytes:
    start, stop = text.find(_CDATA[0]), text.rfind(_CDATA[1])
    if start < 0 or stop < start:
        return text
    inside = text[start + len(_CDATA[0]) : stop][-STDERR_KEPT:]
    return escape(inside.decode("utf-8", "replace")).encode()


UPLOAD_HEAD_BYTES = 16 * 1024
UPLOAD_BOUNDS = XmlBounds(document_bytes=UPLOAD_HEAD_BYTES + 64, elements=64, depth=6)


@dataclass(frozen=True, slots=True)
class SizeQuery:
    """How much of an upload does the project hold?"""

    name: str


def parse_upload(head: bytes) -> UploadHead | SizeQuery:
    """Return a hostile upload request's head: all up to and including ``<data>``.

    Raises:
        TrustError: ``STO-X030``.
    """
    text, cut, _ = head.partition(b"<data>")
    end = b"</file_upload></data_server_request>" if cut else b""
    root = parse_xml(text + end, UPLOAD_BOUNDS)
    if root.tag != "data_server_request":
        raise _unreadable("this is not an upload")
    if root.find("get_file_size") is not None:
        return SizeQuery(check_name(root.string("get_file_size")))
    upload = root.find("file_upload")
    info = upload.find("file_info") if upload else None
    if upload is None or info is None or not cut:
        raise _unreadable("this upload has no file")
    checksum = upload.string("sha256_cksum") or upload.string("md5_cksum")
    if not _CHECKSUM.fullmatch(checksum):
        raise _unreadable("this upload has no usable md5_cksum")
    return UploadHead(
        name=check_name(info.string("name")),
        nbytes=natural(upload, "nbytes"),
        checksum=checksum,
        offset=natural(upload, "offset"),
    )

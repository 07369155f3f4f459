"""A volunteer of a live stock BOINC project, driven by hand, for tests.

It says to the scheduler and the upload handler what a 7.20.5 client says, and runs
nothing: the test decides what a copy's result is.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import Final

from stoilo.core.boinc.xml import Element, XmlBounds, parse_xml
from stoilo.core.errors import InternalError

__all__ = ["HeldCopy", "StockVolunteer", "create_stock_account"]

WAIT_S: Final = 60.0
BOUNDS: Final = XmlBounds(document_bytes=16 * 1024 * 1024)
_PLATFORM: Final = "x86_64-pc-linux-gnu"
_VERSION: Final = """<core_client_major_version>7</core_client_major_version>
<core_client_minor_version>20</core_client_minor_version>
<core_client_release>5</core_client_release>
"""
_REQUEST: Final = """<scheduler_request>
<authenticator>{key}</authenticator>
<hostid>{host}</hostid>
<rpc_seqno>{seqno}</rpc_seqno>
{version}<allow_multiple_clients>1</allow_multiple_clients>
<work_req_seconds>{seconds}</work_req_seconds>
<cpu_req_secs>{seconds}</cpu_req_secs>
<cpu_req_instances>{instances}</cpu_req_instances>
<estimated_delay>0</estimated_delay>
<platform_name>{platform}</platform_name>
<host_info><domain_name>test</domain_name><ip_addr>127.0.0.1</ip_addr>
<host_cpid>{cpid}</host_cpid><p_ncpus>{cpus}</p_ncpus><p_vendor>GenuineIntel</p_vendor>
<p_model>Test</p_model><p_fpops>5e9</p_fpops><p_iops>5e9</p_iops>
<m_nbytes>64e9</m_nbytes><m_swap>64e9</m_swap><d_total>1e12</d_total>
<d_free>9e11</d_free><os_name>Linux</os_name><os_version>6</os_version></host_info>
<disk_usage><d_boinc_used_total>0</d_boinc_used_total>
<d_boinc_used_project>0</d_boinc_used_project><d_project_share>5e11</d_project_share>
</disk_usage>
{reports}<other_results>{others}</other_results>
<in_progress_results></in_progress_results>
</scheduler_request>
"""
_REPORT: Final = """<result>
<name>{name}</name>
<final_cpu_time>1</final_cpu_time>
<final_elapsed_time>1</final_elapsed_time>
<exit_status>{status}</exit_status>
<state>{state}</state>
<platform>{platform}</platform>
<version_num>100</version_num>
<app_version_num>100</app_version_num>
<stderr_out></stderr_out>
{files}</result>
"""
_UPLOAD: Final = """<data_server_request>
{version}<file_upload>
<file_info>
<name>{name}</name>
<xml_signature>
{signature}
</xml_signature>
<max_nbytes>{most}</max_nbytes>
</file_info>
<nbytes>{size}</nbytes>
<md5_cksum>{md5}</md5_cksum>
<offset>0</offset>
<data>
"""


@dataclass(frozen=True, slots=True)
class HeldCopy:
    """A copy that a volunteer was sent.

    Attributes:
        name: BOINC's name of the result.
        workunit: of the workunit.
        upload: name of its result file.
        signature: the upload certificate, as it came.
        most: largest size of that file, as text.
        url: where it goes.
    """

    name: str
    workunit: str
    upload: str
    signature: str
    most: str
    url: str


@dataclass
class StockVolunteer:
    """One account with one computer.

    Attributes:
        scheduler: URL.
        key: the account's.
        held: copies that were sent and not reported, by name.
    """

    scheduler: str
    key: str
    cpus: int = 16
    held: dict[str, HeldCopy] = field(default_factory=dict)
    _host: int = 0
    _seqno: int = 0
    _cpid: str = field(default_factory=lambda: secrets.token_hex(16))

    def fetch(self, room: int = 8) -> list[str]:
        """Ask for work for `room` processors; return the names of the new copies."""
        before = {*self.held}
        self._call(seconds=float(room), instances=float(room))
        return [name for name in self.held if name not in before]

    def unneeded(self) -> list[str]:
        """Return the held copies that the project wants dropped."""
        reply = self._call()
        tags = ("result_abort", "result_abort_if_not_started")
        return [one.string("name") for tag in tags for one in reply.every(tag)]

    def finish(self, copy: str, body: bytes) -> None:
        """Upload a result and report it as a success."""
        self.upload(copy, body)
        self.report(copy)

    def upload(self, copy: str, body: bytes, *, signature: str | None = None) -> str:
        """Upload a result; returns what the handler says when it refuses."""
        held = self.held[copy]
        head = _UPLOAD.format(
            version=_VERSION,
            name=held.upload,
            signature=held.signature if signature is None else signature,
            most=held.most,
            size=len(body),
            md5=hashlib.md5(body, usedforsecurity=False).hexdigest(),
        )
        reply = parse_xml(_post(held.url, head.encode() + body), BOUNDS)
        return "" if reply.string("status") == "0" else reply.string("message")

    def report(self, copy: str, *, state: int = 5, status: int = 0) -> None:
        """Report a copy: 5 uploaded, 3 failed, 6 aborted."""
        held = self.held[copy]
        file = f"<file_info><name>{held.upload}</name></file_info>\n"
        text = _REPORT.format(
            name=copy,
            state=state,
            status=status,
            platform=_PLATFORM,
            files=file if state == 5 else "",
        )
        reply = self._call(reports=text)
        if copy not in {one.string("name") for one in reply.every("result_ack")}:
            raise InternalError("STO-U005", f"{copy} is not acknowledged")
        self.held.pop(copy, None)

    def _call(
        self, *, seconds: float = 0.0, instances: float = 0.0, reports: str = ""
    ) -> Element:
        """Call the scheduler and take what it sends."""
        self._seqno += 1
        others = "".join(
            f"<other_result><name>{name}</name></other_result>" for name in self.held
        )
        body = _REQUEST.format(
            key=self.key,
            host=self._host,
            seqno=self._seqno,
            version=_VERSION,
            seconds=seconds,
            instances=instances,
            platform=_PLATFORM,
            cpid=self._cpid,
            cpus=self.cpus,
            reports=reports,
            others=others,
        )
        reply = parse_xml(_post(self.scheduler, body.encode()), BOUNDS)
        if reply.find("project_is_down") is not None:
            raise InternalError("STO-U005", "the scheduler says the project is down")
        self._host = reply.integer("hostid") or self._host
        self._take(reply)
        return reply

    def _take(self, reply: Element) -> None:
        """Remember the copies in a reply."""
        uploads = {
            info.string("name"): info
            for info in reply.every("file_info")
            if info.find("max_nbytes") is not None
        }
        for result in reply.every("result"):
            ref = result.find("file_ref")
            if ref is None:
                continue
            info = uploads[ref.string("file_name")]
            name = result.string("name")
            self.held[name] = HeldCopy(
                name,
                result.string("wu_name"),
                info.string("name"),
                info.string("xml_signature", longest=4096),
                info.string("max_nbytes"),
                info.string("url", longest=1024)
                or info.string("upload_url", longest=1024),
            )


def create_stock_account(master_url: str, email: str) -> str:
    """Make an account by BOINC's own page for clients; return its key.

    Raises:
        InternalError: ``STO-U005`` when the project makes none.
    """
    words = {
        "email_addr": email,
        "passwd_hash": secrets.token_hex(16),
        "user_name": re.sub(r"\W", "", email),
    }
    url = f"{master_url}create_account.php?{urllib.parse.urlencode(words)}"
    with urllib.request.urlopen(url, timeout=WAIT_S) as reply:  # noqa: S310 - http
        text = reply.read(BOUNDS.document_bytes).decode()
    found = re.search(r"<authenticator>(\w+)</authenticator>", text)
    if found is None:
        raise InternalError("STO-U005", f"no account was made: {text[:200]}")
    return found[1]


def _post(url: str, body: bytes) -> bytes:
    """Return what a URL answers to a body."""
    request = urllib.request.Request(url, body)  # noqa: S310 - http
    with urllib.request.urlopen(request, timeout=WAIT_S) as reply:  # noqa: S310 - http
        return bytes(reply.read(BOUNDS.document_bytes))

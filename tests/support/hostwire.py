"""One project's HTTP for many simulated hosts, without what a real volunteer keeps."""

from __future__ import annotations

import hashlib

import urllib3

from stoilo.core.boinc.messages import (
    FileInfo,
    SchedulerReply,
    SchedulerRequest,
    UploadInfo,
)
from stoilo.core.errors import UnreachableError
from stoilo.executor.volunteer.addresses import find_scheduler
from stoilo.executor.volunteer.scheduler_rpc import parse_reply, render_request
from stoilo.executor.volunteer.transfer import (
    PERMANENT,
    Refused,
    parse_upload_reply,
    render_upload_head,
)

__all__ = ["HostWire"]


class HostWire:
    """HTTP to one project for all hosts; safe for several threads.

    Raises (every method):
        UnreachableError: STO-X001 no answer, or one of trouble.
    """

    def __init__(self, master_url: str, connections: int = 16) -> None:
        self.master_url = master_url
        self._pool = urllib3.PoolManager(
            num_pools=2, maxsize=connections, block=True, retries=False, timeout=30.0
        )
        page = self._say("GET", master_url)
        self._scheduler = find_scheduler(page, master_url)

    def call(self, request: SchedulerRequest) -> SchedulerReply:
        """Make one scheduler RPC."""
        data = self._say("POST", self._scheduler, render_request(request))
        return parse_reply(data, self.master_url)

    def download(self, file: FileInfo) -> bytes:
        """Return an input file, checked as a client checks it."""
        data = self._say("GET", file.url)
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        if (len(data), md5) != (file.nbytes, file.md5):
            raise UnreachableError("STO-X001", "a download is not what was announced")
        return data

    def upload(self, upload: UploadInfo, data: bytes) -> None:
        """Send a result file."""
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        head = render_upload_head(upload, nbytes=len(data), checksum=md5, offset=0)
        status, _, why = parse_upload_reply(self._say("POST", upload.url, head + data))
        if status < 0:
            raise Refused("STO-X006", f"the upload was refused: {why}")
        if status:
            raise UnreachableError("STO-X001", f"the upload was not taken: {why}")

    def close(self) -> None:
        """Close every connection."""
        self._pool.clear()

    def _say(self, method: str, url: str, body: bytes | None = None) -> bytes:
        try:
            answer = self._pool.request(method, url, body=body, redirect=False)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise UnreachableError("STO-X001", type(error).__name__) from error
        if answer.status in PERMANENT:
            raise Refused("STO-X001", f"HTTP {answer.status}")
        if answer.status != 200:
            raise UnreachableError("STO-X001", f"HTTP {answer.status}")
        return answer.data

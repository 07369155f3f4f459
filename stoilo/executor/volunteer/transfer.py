"""The volunteer's HTTP: account, scheduler calls, downloads, uploads. Every answer is bounded.

A file counts only when its size and the SHA-256 that is its name are right (the MD5, of one
with another name), so a mirror is believed in nothing: one that is dead, slow or sends other
bytes is passed over, and the project is left.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from stoilo.core.boinc.messages import (
    FileInfo,
    SchedulerReply,
    SchedulerRequest,
    UploadInfo,
)
from stoilo.core.boinc.xml import XmlBounds, leaf, parse_xml
from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError, UnreachableError
from stoilo.core.http_client import (
    AnswerTooLargeError,
    HttpClient,
    HttpError,
)
from stoilo.executor.verifier.installation import disk_trouble, replace_file
from stoilo.executor.volunteer.addresses import find_scheduler, same_origin
from stoilo.executor.volunteer.ledger import ResultRecord, mark_sticky
from stoilo.executor.volunteer.scheduler_rpc import (
    CLIENT_VERSION,
    REPLY_BOUNDS,
    parse_reply,
    render_request,
    render_version,
)

UPLOAD_REPLY_BOUNDS = XmlBounds(document_bytes=64 * 1024, elements=64)


def render_size_query(name: str) -> bytes:
    """Return the body that asks how much of upload `name` the project holds."""
    return _data_request(leaf("get_file_size", name), "</data_server_request>")


def render_upload_head(
    upload: UploadInfo, *, nbytes: int, checksum: str, offset: int
) -> bytes:
    """Return everything of an upload before its raw bytes.

    `checksum`: of the whole file, its MD5 or, for who takes it, its SHA-256.
    """
    kind = "sha256_cksum" if len(checksum) == NAMED_BY_DIGEST else "md5_cksum"
    return _data_request(
        "<file_upload>",
        "<file_info>",
        leaf("name", upload.name),
        "<xml_signature>",
        "</xml_signature>",
        leaf("max_nbytes", upload.max_nbytes),
        "</file_info>",
        leaf("nbytes", nbytes),
        leaf(kind, checksum),
        leaf("offset", offset),
        "<data>",
    )


def _data_request(*lines: str) -> bytes:
    begin = ("<data_server_request>", *render_version(CLIENT_VERSION))
    return "\n".join((*begin, *lines, "")).encode()


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


def takes_sha256(data: bytes) -> bool:
    """Whether a project's answer (hostile) says that it takes that as a checksum."""
    return parse_xml(data, UPLOAD_REPLY_BOUNDS).find("takes_sha256") is not None


PAGE_BYTES = 64 * 1024
ASK_SIZE_FROM = 256 * 1024  # what is smaller is sent sooner than asked about
NAMED_BY_DIGEST = 64
OK, PARTIAL, NOT_FOUND, RANGE_WRONG = 200, 206, 404, 416
AGENT = "stoilo volunteer (BOINC client 7.20.5)"
PASSING: Final = frozenset({408, 416, 425, 429})
"""Statuses below 500 that may be others the next time."""

PERMANENT: Final = frozenset(range(400, 500)) - PASSING
"""Statuses by which a download fails for good, as for BOINC's client."""


ANSWER_S: Final = 120.0
"""Most that a small answer may take, headers included, s."""

SLOWEST: Final = 1024
LONGEST_S: Final = 3600.0
"""A download has a second for each `SLOWEST` bytes more, and no longer than this; what has
come is kept and the next try goes on."""

MIRROR_S: Final = 20.0
MIRROR_SLOWEST: Final = 16 * 1024
"""The same of a mirror, where the project itself is the better choice sooner."""


class Refused(UnreachableError):
    """The project said no for good; trying again cannot help."""


class Missing(UnreachableError):
    """The project has no such file."""


class Transfer:
    """Connections to one project; safe for several threads.

    Args:
        master_url: with final slash.
        ca: certificates to trust instead of the system's, None for the system's.
        timeout_s: longest pause of the other side, s.
        answer_s: longest that a small answer may take, s.
        redirects: how many are followed.
    """

    def __init__(
        self,
        master_url: str,
        *,
        ca: Path | None = None,
        timeout_s: float = 30.0,
        answer_s: float = ANSWER_S,
        redirects: int = 0,
    ) -> None:
        self._master_url = master_url
        self._closed = False
        self._answer_s = answer_s
        self._http = HttpClient(
            agent=AGENT, ca=ca, read_s=timeout_s, redirects=redirects
        )

    def close(self) -> None:
        """Close every connection; a download in progress ends at its next piece."""
        self._closed = True
        self._http.close()

    def scheduler_url(self) -> str:
        """Return the scheduler's URL from the master page.

        Raises:
            UnreachableError: ``STO-X001``.
        """
        return find_scheduler(self.get(""), self._master_url)

    def get(self, url: str, most: int = PAGE_BYTES) -> bytes:
        """Return a small file of the project, by an address relative to its master URL.

        Raises:
            UnreachableError: ``STO-X001``; `Missing` when the project has no such file.
            TrustError: ``STO-X030`` it is larger than `most` bytes.
        """
        return self._small("GET", same_origin(self._master_url, url), most=most)

    def call(self, scheduler: str, request: SchedulerRequest) -> SchedulerReply:
        """Make one scheduler RPC.

        Raises:
            UnreachableError: ``STO-X001``.
            TrustError: ``STO-X030`` for a reply that cannot be read.
        """
        body = render_request(request)
        data = self._small(
            "POST", scheduler, most=REPLY_BOUNDS.document_bytes, body=body
        )
        return parse_reply(data, self._master_url)

    def download(self, file: FileInfo, target: Path) -> None:
        """Bring one input file to `target`, resuming a part; complete or not there.

        Raises:
            UnreachableError: ``STO-X001``, try again later.
            Refused: ``STO-X005`` when the project does not have it any more.
            TrustError: ``STO-X005`` for other bytes than announced.
            InternalError: ``STO-X008``.
        """
        if target.exists() and target.stat().st_size == file.nbytes:
            return
        part = target.with_name(f"{target.name}.part")
        with disk_trouble("a download cannot be stored"):
            # A killed process leaves the part; the next try goes on from it.
            self._bring(file, part)
            with part.open("rb") as stream:
                os.fsync(stream.fileno())
            if file.sticky:
                mark_sticky(part)
            part.replace(target)

    def upload(self, copy: ResultRecord, path: Path) -> None:
        """Send a finished result file, resuming where the project is.

        Raises:
            UnreachableError: ``STO-X001``, try again later.
            Refused: ``STO-X006``, never again.
            TrustError: ``STO-X030`` for an answer that cannot be read.
        """
        data = path.read_bytes()
        if len(data) > copy.upload_max:
            raise Refused("STO-X006", "the result is larger than the project takes")
        offset, is_ours = 0, False
        if len(data) >= ASK_SIZE_FROM:
            query = render_size_query(copy.upload_name)
            held, is_ours = self._say(copy.upload_url, query)
            offset = min(held, len(data))
        info = UploadInfo(copy.upload_name, copy.upload_url, copy.upload_max)
        # The project hashes for itself: by the same sum it need not read the file twice.
        md5 = hashlib.md5(usedforsecurity=False)
        total = hashlib.sha256() if is_ours else md5
        total.update(data)
        checksum = total.hexdigest()
        head = render_upload_head(
            info, nbytes=len(data), checksum=checksum, offset=offset
        )
        self._say(copy.upload_url, head + data[offset:])

    def _say(self, url: str, body: bytes) -> tuple[int, bool]:
        """Post to the upload handler; returns the size held, and `takes_sha256`."""
        answer = self._small("POST", url, most=PAGE_BYTES, body=body)
        status, held, message = parse_upload_reply(answer)
        if status < 0:
            raise Refused("STO-X006", f"the upload was refused: {message[:200]}")
        if status > 0:
            raise UnreachableError("STO-X001", f"upload put off: {message[:200]}")
        return max(0, held), takes_sha256(answer)

    def _bring(self, file: FileInfo, part: Path) -> None:
        """Bring a file to `part` from the first mirror, or the project, that has it."""
        for url in file.mirrors:
            with suppress(TrustError, UnreachableError):
                mirrored = replace(file, url=url)
                self._whole(mirrored, part, MIRROR_S, MIRROR_SLOWEST)
                return
        resumed = part.exists()
        try:
            self._whole(file, part)
        except TrustError:
            if not (resumed and file.mirrors):
                raise
            self._whole(file, part)  # the beginning may have been a mirror's

    def _whole(
        self,
        file: FileInfo,
        part: Path,
        longest_s: float = ANSWER_S,
        slowest: int = SLOWEST,
    ) -> None:
        """Bring a whole file to its part; other bytes are gone again."""
        self._fetch(file, part, min(longest_s, self._answer_s), slowest)
        if not matches(file, part):
            part.unlink(missing_ok=True)
            raise TrustError("STO-X005", "a download is not what was announced")

    def _fetch(self, file: FileInfo, part: Path, begin_s: float, slowest: int) -> None:
        """Write what is missing of a file to its part, as fast as `slowest` bytes/s."""
        held = part.stat().st_size if part.exists() else 0
        # A part as large as the file did not add up before, so it starts anew.
        if held >= file.nbytes:
            held = 0
        headers = {"Range": f"bytes={held}-"} if held else {}
        allowed = begin_s + (file.nbytes - held) / slowest
        allowed = min(allowed, LONGEST_S)
        with (
            _answering(),
            self._http.open(
                "GET", file.url, within_s=allowed, headers=headers
            ) as answer,
        ):
            if answer.status in PERMANENT:
                raise Refused(
                    "STO-X005", f"the project gives no file (HTTP {answer.status})"
                )
            if answer.status == RANGE_WRONG:  # our part is not the beginning of it
                part.unlink(missing_ok=True)
            if answer.status not in {OK, PARTIAL}:
                raise UnreachableError("STO-X001", f"HTTP {answer.status}")
            begins = f"bytes {held}-"
            resumed = answer.headers.get("content-range", "").startswith(begins)
            if answer.status == PARTIAL and not resumed:
                part.unlink(missing_ok=True)
                raise UnreachableError("STO-X001", "another part of a file came")
            size = held if resumed else 0
            with part.open("ab" if resumed else "wb") as stream:
                for chunk in answer.chunks():
                    size += len(chunk)
                    # More than announced is not stored: a server could fill the disk.
                    if size > file.nbytes or self._closed:
                        break
                    stream.write(chunk)
        if size < file.nbytes:
            raise UnreachableError("STO-X001", "a download ended early")

    def _small(self, method: str, url: str, *, most: int, body: bytes = b"") -> bytes:
        headers = {"Content-Type": "application/x-www-form-urlencoded"} if body else {}
        with _answering():
            answer = self._http.fetch(
                method,
                url,
                most=most,
                within_s=self._answer_s,
                body=body or None,
                headers=headers,
            )
        if answer.status != OK:
            kind = Missing if answer.status == NOT_FOUND else UnreachableError
            raise kind("STO-X001", f"HTTP {answer.status} for {url}")
        return answer.body


@contextmanager
def _answering() -> Iterator[None]:
    """Name what goes wrong while the project answers."""
    try:
        yield
    except AnswerTooLargeError as error:
        raise TrustError("STO-X030", "the project's answer is too large") from error
    except HttpError as error:
        raise UnreachableError(
            "STO-X001", f"the project cannot be reached: {error}"
        ) from error


def keep_content(file: FileInfo, target: Path) -> None:
    """Keep a file that came with its reply, if it is the one that its name says.

    Any other is fetched like those that did not come. Raises ``STO-X008``.
    """
    is_it = len(file.content) == file.nbytes > 0
    if is_it and not target.exists() and content_digest(file.content) == file.name:
        replace_file(target, file.content)


def matches(file: FileInfo, path: Path) -> bool:
    """Say whether a file has the announced size and the SHA-256 that is its name.

    Of a file with another name, the MD5; programs have none and are signed instead.
    """
    named = len(file.name) == NAMED_BY_DIGEST
    total = hashlib.sha256() if named else hashlib.md5(usedforsecurity=False)
    try:
        with path.open("rb") as stream:
            found = hashlib.file_digest(stream, lambda: total).hexdigest()
            size = stream.tell()
    except OSError:
        return False
    wanted = file.name if named else file.md5
    return size == file.nbytes and wanted in {found, ""}

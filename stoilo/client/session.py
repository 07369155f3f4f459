"""What the tasks of one connection share: the channel, the journal, blobs sent once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from stoilo.client.capture import Captured
from stoilo.client.capture.stored import encode_stored
from stoilo.client.journal import Journal, entry_now
from stoilo.client.request import TaskOptions, create_request
from stoilo.client.wire import Wire
from stoilo.core.digests import content_digest
from stoilo.core.errors import UsageError

PATIENCE_S = 60.0

Review = Callable[[str], bool]


@dataclass(eq=False)
class Session:
    """What the tasks of one connection share."""

    wire: Wire  # the channel
    journal: Journal  # where submitted ids are noted
    # how long calls that somebody waits for outlast a lost server, s
    patience_s: float = PATIENCE_S
    # asked with the exact text before the first submission of a source
    review: Review | None = None

    def __post_init__(self) -> None:
        self._reviewed: set[str] = set()
        self._uploads: dict[str, asyncio.Future[str]] = {}

    async def submit(self, captured: Captured, options: TaskOptions, key: str) -> str:
        """Upload blobs, create the task (idempotent by `key`), note and return its id."""
        digest = source_digest(captured)
        self._ask_for_review(captured, digest)
        names = [await self._ensure_blob(blob) for blob in captured.blobs]
        request = create_request(captured, options, key, names)
        answer = await self.wire.call_patiently(
            "CreateTask", request, patience_s=self.patience_s
        )
        target = self.wire.address.target
        self.journal.append(entry_now(answer.task_id, target, options.label, digest))
        return str(answer.task_id)

    def _ask_for_review(self, captured: Captured, digest: str) -> None:
        if self.review is None or digest in self._reviewed:
            return
        if not self.review(captured.task_module):
            raise UsageError(
                "STO-C040",
                "the source was shown and not approved; nothing was sent",
                hint="change the function, or answer yes",
            )
        self._reviewed.add(digest)

    async def _ensure_blob(self, blob: bytes | str) -> str:
        """Upload a blob once a session; a digest names one that is there already."""
        if isinstance(blob, str):
            return blob
        name = encode_stored(blob)
        work = self._uploads.get(name)
        if work is None or (work.done() and (work.cancelled() or work.exception())):
            upload = self.wire.upload(blob, patience_s=self.patience_s)
            work = asyncio.ensure_future(upload)
            self._uploads[name] = work
        return await asyncio.shield(work)

    async def store(self, data: bytes) -> str:
        """Upload bytes and return their digest."""
        return await self._ensure_blob(data)


def source_digest(captured: Captured) -> str:
    """Return the SHA-256 of the task module."""
    return content_digest(captured.task_module.encode())

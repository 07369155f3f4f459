"""What the tasks of one connection share: the channel, the journal, blobs sent once.

The journal notes ids of submitted tasks, so that another process finds them again: one JSON
object a line in the user's state directory, 0600, without source, data or tokens. Losing it
loses nothing but the list: the server has the tasks.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from stoilo.client.capture import Captured
from stoilo.client.capture.arguments import encode_stored
from stoilo.client.capture.known import Captures
from stoilo.client.options import TaskOptions, create_request
from stoilo.client.submitting import Submitter
from stoilo.client.waiting import Waiting
from stoilo.client.wire import Wire
from stoilo.core.digests import content_digest
from stoilo.core.errors import StoiloError, UsageError

P = ParamSpec("P")
GivenT = TypeVar("GivenT")

logger = logging.getLogger("stoilo.client")

MAX_READ_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One submitted task."""

    task_id: str  # for `Connection.restore_task`
    target: str  # `host:port` it was sent to
    label: str  # as given to `create_task`
    source_digest: str  # SHA-256 of the task module
    submitted_at: int  # s since 1970


def append_row(path: Path, row: Mapping[str, object]) -> bool:
    """Append one JSON line to a file that only its user can read; tell a disk's refusal."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(path, flags, 0o600)
        try:
            os.write(handle, json.dumps(row, separators=(",", ":")).encode() + b"\n")
        finally:
            os.close(handle)
    except OSError as error:
        logger.warning("the task journal cannot be written: %s", error.strerror)
        return False
    return True


class Journal:
    """Append-only list in one file; None keeps nothing."""

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def append(self, entry: JournalEntry) -> None:
        """Add one line; a full or read-only disk is reported once and not fatal."""
        if self.path is not None and not append_row(self.path, asdict(entry)):
            self.path = None

    def read(self, limit: int = 100, target: str = "") -> list[JournalEntry]:
        """Return the newest entries, newest first; lines that do not parse are skipped.

        Args:
            limit: how many at most.
            target: only what was sent there; to any server when empty.
        """
        if self.path is None or not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(max(0, self.path.stat().st_size - MAX_READ_BYTES))
            rows = file.read().decode("utf-8", "replace").splitlines()
        entries: list[JournalEntry] = []
        for row in reversed(rows):
            if len(entries) >= limit:
                break
            try:
                entry = JournalEntry(**json.loads(row))
            except (ValueError, TypeError):
                continue
            if target in {"", entry.target}:
                entries.append(entry)
        return entries


def default_journal() -> Journal:
    """Return the user's journal (XDG state directory and its equivalents)."""
    import platformdirs  # noqa: PLC0415 - kept out of `import stoilo`

    return Journal(platformdirs.user_state_path("stoilo") / "tasks.jsonl")


def entry_now(
    task_id: str, target: str, label: str, source_digest: str
) -> JournalEntry:
    """Return an entry dated now."""
    return JournalEntry(task_id, target, label, source_digest, int(time.time()))


def at_the_caller(
    method: Callable[P, Coroutine[Any, Any, GivenT]],
) -> Callable[P, Coroutine[Any, Any, GivenT]]:
    """Return `method` whose errors of ours show its caller's frames, not ours."""

    @functools.wraps(method)
    async def call(*args: P.args, **kwargs: P.kwargs) -> GivenT:
        try:
            return await method(*args, **kwargs)
        except StoiloError as error:  # its way through here says nothing to a caller
            raise error.with_traceback(None) from error.__cause__

    return call


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
        self.captures = Captures()
        self.waiting = Waiting(self.wire)
        self._submitter = Submitter(self.wire, self.patience_s)
        self._reviewed: set[str] = set()
        self._uploads: dict[str, asyncio.Future[str]] = {}

    async def submit(self, captured: Captured, options: TaskOptions, key: str) -> str:
        """Upload blobs, create the task (idempotent by `key`), note and return its id."""
        digest = source_digest(captured)
        self._ask_for_review(captured, digest)
        names = [await self._ensure_blob(blob) for blob in captured.blobs]
        request = create_request(captured, options, key, names)
        task_id = await self._submitter.create(request)
        target = self.wire.address.target
        self.journal.append(entry_now(task_id, target, options.label, digest))
        return task_id

    async def close(self) -> None:
        """Stop waiting and close the channel."""
        await self.waiting.close()
        await self.wire.close()

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
            upload = self.wire.upload(name, blob, patience_s=self.patience_s)
            work = asyncio.ensure_future(upload)
            self._uploads[name] = work
        return await asyncio.shield(work)

    async def store(self, data: bytes) -> str:
        """Upload bytes and return their digest."""
        return await self._ensure_blob(data)


def source_digest(captured: Captured) -> str:
    """Return the SHA-256 of the task module."""
    return content_digest(captured.task_module.encode())

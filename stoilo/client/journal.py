"""The local journal: ids of submitted tasks, so that another process finds them again.

One JSON object a line in the user's state directory, 0600. It holds no source, data or
tokens. Losing it loses nothing but the list: the server has the tasks.
"""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

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


class Journal:
    """Append-only list in one file; None keeps nothing."""

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def append(self, entry: JournalEntry) -> None:
        """Add one line; a full or read-only disk is reported once and not fatal."""
        if self.path is None:
            return
        line = json.dumps(asdict(entry), separators=(",", ":")) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            handle = os.open(self.path, flags, 0o600)
            try:
                os.write(handle, line.encode())
            finally:
                os.close(handle)
        except OSError as error:
            logger.warning("the task journal cannot be written: %s", error.strerror)
            self.path = None

    def read(self, limit: int = 100) -> list[JournalEntry]:
        """Return the newest entries, newest first; lines that do not parse are skipped."""
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
                entries.append(JournalEntry(**json.loads(row)))
            except (ValueError, TypeError):
                continue
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

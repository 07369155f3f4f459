"""Our own copies of results, made before anything is said of them.

A file in BOINC's upload folder stays its host's: the upload handler opens what is there
and writes into it, and makes it read-only only when as many bytes have arrived as were
announced. So what is judged, compared and delivered is a copy of ours, made at the first
question and never made again; what its host writes afterwards changes nothing. The copies
lie in a folder of their own for each workunit, until its outcome has been delivered.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO, Final

from stoilo.core.files import sync_directory
from stoilo.server.engines.interface import ReceivedResult
from stoilo.server.engines.stock.project.directory import place

if TYPE_CHECKING:
    from pathlib import Path

    from stoilo.server.engines.stock.project.boinc_tables import (
        OwnWorkunit,
        ResultRow,
    )
    from stoilo.server.engines.stock.project.directory import StockProject


_MODE: Final = 0o700
_CHUNK: Final = 1024 * 1024


class KeptResults:
    """Results as they are judged, below `folder`: made when there is something to keep."""

    def __init__(self, project: StockProject) -> None:
        self._project = project
        self.folder = project.own / "kept"

    def result_of(self, own: OwnWorkunit, row: ResultRow) -> ReceivedResult | None:
        """Return a result as a copy of ours, None when its file is lost.

        After the workunit's outcome nothing is kept: what comes late is read where it
        lies.

        Raises:
            OSError: it cannot be read, or kept, just now: trouble of our own.
        """
        source = place(self._project.upload, row.output, self._project.fanout)
        path = self.path_of(own.row, row.name)
        try:
            if own.outcome is None:
                self._take(path, source, row.max_bytes + 1)
            return _received(row, own.name, path if path.exists() else source)
        except FileNotFoundError:
            # where a disk is not mounted, an empty folder is: nothing is lost then
            with os.scandir(self._project.upload) as found:
                mounted = next(found, None) is not None
            if mounted and not source.exists():
                return None
            raise

    def path_of(self, row: int, result: str) -> Path:
        """Return where the copy of a result lies, or would; `row` is our workunit's."""
        return self.folder / str(row) / result

    def drop(self, row: int, result: str) -> None:
        """Remove a copy that no outcome can rest on."""
        with suppress(OSError):  # goes with the workunit then
            self.path_of(row, result).unlink()

    def forget(self, row: int) -> None:
        """Remove a workunit's copies."""
        shutil.rmtree(self.folder / str(row), ignore_errors=True)

    def _take(self, target: Path, source: Path, most: int) -> None:
        """Copy a result durably unless there is a copy.

        What its host has uploaded may be being written just now; beyond `most` bytes it
        is cut off, and so not a result.

        Raises:
            FileNotFoundError: there is neither.
            OSError: the disk refuses.
        """
        if target.exists():
            return
        with source.open("rb") as stream:
            target.parent.mkdir(parents=True, exist_ok=True, mode=_MODE)
            draft = target.with_name(f".{target.name}.{threading.get_ident()}")
            try:
                with draft.open("wb") as copy:
                    _copy(stream, copy, most)
                    copy.flush()
                    os.fsync(copy.fileno())
                # not `write_durably`, which replaces: of two threads that ask at once the
                # first one's bytes stay, whatever the host has written between them
                with suppress(FileExistsError):
                    os.link(draft, target)
            finally:
                draft.unlink(missing_ok=True)
        sync_directory(target.parent)
        sync_directory(self.folder)


def _received(row: ResultRow, workunit: str, path: Path) -> ReceivedResult:
    """Return a result with size and digest of its file; raises ``OSError``.

    One longer than it may be is read no further: its size says so.
    """
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as stream:
        while size <= row.max_bytes and (data := stream.read(_CHUNK)):
            digest.update(data)
            size += len(data)
    return ReceivedResult(
        name=row.name,
        workunit=workunit,
        path=path,
        size=size,
        digest=digest.hexdigest(),
        host_id=row.host_id,
        user_id=row.user_id,
        received_at=row.received_at,
        cpu_s=row.cpu_s,
        flops=row.flops,
    )


def _copy(source: BinaryIO, target: BinaryIO, most: int) -> None:
    while most > 0 and (data := source.read(min(_CHUNK, most))):
        target.write(data)
        most -= len(data)

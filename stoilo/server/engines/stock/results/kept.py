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

from stoilo.server.engines.interface import ReceivedResult
from stoilo.server.engines.stock.project.directory import place

if TYPE_CHECKING:
    from pathlib import Path

    from stoilo.server.engines.stock.project.boinc_rows import (
        OwnWorkunit,
        ResultRow,
    )
    from stoilo.server.engines.stock.project.directory import StockProject


_MODE: Final = 0o700
_CHUNK: Final = 1024 * 1024


class Uploads:
    """The files that hosts have uploaded."""

    def __init__(self, project: StockProject) -> None:
        self._project = project

    @property
    def there(self) -> bool:
        """Whether anything is there: where a disk is not mounted, an empty folder is.

        Raises:
            OSError: the folder cannot be read.
        """
        with os.scandir(self._project.upload) as found:
            return next(found, None) is not None

    def path_of(self, row: ResultRow) -> Path:
        """Return where a result's file lies, or would."""
        return place(self._project.upload, row.output, self._project.fanout)

    def received(self, row: ResultRow, workunit: str, path: Path) -> ReceivedResult:
        """Return a result and the size and digest of its file; raises ``OSError``.

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


class KeptFolder:
    """The copies; `folder` is made when there is something to keep."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path_of(self, row: int, result: str) -> Path:
        """Return where the copy of a result lies, or would.

        Args:
            row: ours, of the workunit.
            result: name of it.
        """
        return self._folder / str(row) / result

    def take(self, row: int, result: str, source: Path, most: int) -> Path:
        """Copy a result durably unless there is a copy; returns where it is.

        Args:
            row: ours, of the workunit.
            result: name of it.
            source: what its host has uploaded; it may be writing just now.
            most: bytes copied; what is longer is cut off, and so not a result.

        Raises:
            FileNotFoundError: there is neither.
            OSError: the disk refuses.
        """
        target = self.path_of(row, result)
        if target.exists():
            return target
        with source.open("rb") as stream:
            target.parent.mkdir(parents=True, exist_ok=True, mode=_MODE)
            draft = target.with_name(f".{result}.{threading.get_ident()}")
            try:
                with draft.open("wb") as copy:
                    _copy(stream, copy, most)
                    copy.flush()
                    os.fsync(copy.fileno())
                with suppress(FileExistsError):  # the first one stays
                    os.link(draft, target)
            finally:
                draft.unlink(missing_ok=True)
        _sync(target.parent)
        _sync(self._folder)
        return target

    def drop(self, row: int, result: str) -> None:
        """Remove a copy that no outcome can rest on."""
        with suppress(OSError):  # goes with the workunit then
            self.path_of(row, result).unlink()

    def forget(self, row: int) -> None:
        """Remove a workunit's copies."""
        shutil.rmtree(self._folder / str(row), ignore_errors=True)


class KeptResults:
    """Results as they are judged."""

    def __init__(self, uploads: Uploads, kept: KeptFolder) -> None:
        self._uploads = uploads
        self._kept = kept

    def result_of(self, own: OwnWorkunit, row: ResultRow) -> ReceivedResult | None:
        """Return a result as a copy of ours, None when its file is lost.

        After the workunit's outcome nothing is kept: what comes late is read where it
        lies.

        Raises:
            OSError: it cannot be read, or kept, just now: trouble of our own.
        """
        source = self._uploads.path_of(row)
        copy = self._kept.path_of(own.row, row.name)
        try:
            if own.outcome is None:
                copy = self._kept.take(own.row, row.name, source, row.max_bytes + 1)
            path = copy if copy.exists() else source
            return self._uploads.received(row, own.name, path)
        except FileNotFoundError:
            if self._uploads.there and not source.exists():
                return None
            raise


def _copy(source: BinaryIO, target: BinaryIO, most: int) -> None:
    while most > 0 and (data := source.read(min(_CHUNK, most))):
        target.write(data)
        most -= len(data)


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)

"""One downloaded copy of a task: its names and its files, all hostile."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stoilo.core.errors import TrustError
from stoilo.executor import workdir

__all__ = ["Work"]


@dataclass(frozen=True, slots=True)
class Work:
    """One downloaded copy.

    Attributes:
        result: BOINC result name.
        workunit: workunit name, ``<task id>_<attempt>``.
        app: BOINC app under which it came: must be the admission's level.
        files: (open name, file) of every input; hostile content.
    """

    result: str
    workunit: str
    app: str
    files: tuple[tuple[str, Path], ...]

    def file(self, open_name: str) -> Path:
        """Return the file behind an open name, or raise ``STO-X011``."""
        for name, path in self.files:
            if name == open_name:
                return path
        raise TrustError("STO-X011", f"the workunit lacks its file {open_name!r}")

    def read(self, open_name: str) -> bytes:
        """Return a small file's bytes, bounded; raises ``STO-X011``."""
        path, bound = self.file(open_name), workdir.open_name_bound(open_name)
        try:
            with path.open("rb") as stream:
                data = stream.read(bound + 1)
        except OSError as error:
            raise TrustError("STO-X011", f"{open_name} cannot be read") from error
        if len(data) > bound:
            raise TrustError("STO-X011", f"{open_name} is larger than {bound} bytes")
        return data

    def read_if_there(self, open_name: str) -> bytes:
        """Return a small file's bytes, b"" when the workunit lacks it; see `read`."""
        named = any(name == open_name for name, _ in self.files)
        return self.read(open_name) if named else b""

    def blobs(self) -> tuple[Path, ...]:
        """Return the blob files in order; they are numbered without gaps."""
        names = {name for name, _ in self.files}
        count = sum(name.startswith("blob_") for name in names)
        return tuple(self.file(workdir.blob_name(index)) for index in range(count))

    def runtime_archive(self) -> Path | None:
        """Return the file of the flavor's archive, None when the workunit lacks it."""
        return next((path for name, path in self.files if name == workdir.FLAVOR), None)

"""A workunit's files by their open names, and what the verifier makes of them.

`Work` is one result as it was downloaded: hostile names and files. `TaskBundle` is the same in
the verifier's form, `HostState` this computer, `VerifiedTask` what may then run. Files are
opened once, never through links, and hashed from what was opened, so that there is no moment
in which one could be exchanged between check and use.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from stoilo.audit.format.proof import ProvenLeaf
from stoilo.core.digests import Digest
from stoilo.core.errors import TrustError
from stoilo.core.levels import Level
from stoilo.core.limits import BOUNDS, RunLimits
from stoilo.core.statement import MAX_REVOCATIONS_BYTES, Statement
from stoilo.executor.verifier.revocation import SeenRevocations
from stoilo.executor.verifier.targets import GateEpoch

ADMISSION = "admission"
PROOF = "proof"
TASK_MODULE = "task_module"
ARGUMENTS = "arguments"
RELEASE = "release"
REVOCATIONS = "revocations"
FLAVOR = "flavor"
RESULT = "result"

RELEASE_BYTES = 8 * 1024 * 1024
FLAVOR_BYTES = 2 * 1024 * 1024 * 1024
_BOUND_OF = {
    ADMISSION: BOUNDS.envelope_bytes,
    PROOF: BOUNDS.proof_bytes,
    TASK_MODULE: BOUNDS.source_bytes,
    ARGUMENTS: BOUNDS.inline_arguments_bytes,
    RELEASE: RELEASE_BYTES,
    REVOCATIONS: MAX_REVOCATIONS_BYTES,
    FLAVOR: FLAVOR_BYTES,
}


def blob_name(index: int) -> str:
    """Return the open name of the `index`-th blob of the statement, from 0."""
    return f"blob_{index:03d}"


def open_name_bound(open_name: str) -> int:
    """Return the largest size, bytes, of the file behind `open_name`; 0 if unknown."""
    if re.fullmatch(r"blob_[0-9]{3}", open_name):
        return BOUNDS.blob_bytes
    return _BOUND_OF.get(open_name, 0)


@dataclass(frozen=True, slots=True)
class Work:
    """One downloaded copy."""

    result: str  # BOINC result name
    workunit: str  # workunit name, ``<task id>_<attempt>``
    app: str  # BOINC app under which it came: must be the admission's level
    # (open name, file) of every input; hostile content
    files: tuple[tuple[str, Path], ...]

    def file(self, open_name: str) -> Path:
        """Return the file behind an open name, or raise ``STO-X011``."""
        for name, path in self.files:
            if name == open_name:
                return path
        raise TrustError("STO-X011", f"the workunit lacks its file {open_name!r}")

    def read(self, open_name: str) -> bytes:
        """Return a small file's bytes, bounded; raises ``STO-X011``."""
        path, bound = self.file(open_name), open_name_bound(open_name)
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
        return tuple(self.file(blob_name(index)) for index in range(count))

    def runtime_archive(self) -> Path | None:
        """Return the file of the flavor's archive, None when the workunit lacks it."""
        return next((path for name, path in self.files if name == FLAVOR), None)


Source = bytes | Path

# O_NONBLOCK: opening a pipe that was put here must not wait for a writer.
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class InputFile:
    """One opened input of known size; close it or use it in a ``with`` statement."""

    def __init__(self, source: Source, *, max_bytes: int, what: str) -> None:
        """Open `source` (bytes stay as they are).

        Raises:
            TrustError: STO-A057 when it is missing, no plain file, or too large.
        """
        self._what = what
        self._data = source if isinstance(source, bytes) else None
        self._descriptor = -1
        if isinstance(source, Path):
            self._descriptor = _open(source, what)
        self.size = self._measure()
        if self.size > max_bytes:
            self.close()
            raise TrustError("STO-A057", f"{what} is larger than {max_bytes} bytes")

    def _measure(self) -> int:
        """Return the size in bytes, of what is open."""
        if self._data is not None:
            return len(self._data)
        status = os.fstat(self._descriptor)
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise TrustError("STO-A057", f"{self._what} is not a plain file")
        return status.st_size

    def read(self) -> bytes:
        """Return exactly the bytes that were there when the file was opened."""
        if self._data is None:
            with open(self._descriptor, "rb", closefd=False) as file:
                self._data = file.read(self.size + 1)
            # Whoever can write to it could otherwise choose which bytes are hashed.
            if len(self._data) != self.size:
                raise TrustError("STO-A057", f"{self._what} changed while being read")
        return self._data

    def close(self) -> None:
        """Close the descriptor, if one is open."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        """Return the file itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the descriptor."""
        self.close()


def _open(path: Path, what: str) -> int:
    try:
        return os.open(path, _FLAGS)
    except OSError as error:
        raise TrustError("STO-A057", f"{what} cannot be opened") from error


@dataclass(frozen=True, slots=True)
class TaskBundle:
    """One workunit as it arrived; everything here is hostile."""

    envelope: bytes  # the admission, DSSE JSON
    proof: bytes  # the log proof, tlog-proof text
    task_id: str  # the task that the workunit claims to be
    attempt: int  # the attempt that the workunit claims to be
    app_level: str  # level of the BOINC app under which it came
    # id (SHA-256 of the manifest's bytes) of the runtime that would run it; empty when
    # any of `HostState.flavors` could
    flavor: str
    task_module: Source  # the source
    arguments: Source  # the encoded arguments
    blobs: tuple[Source, ...] = ()  # in the workunit's order
    # the project's newest revocation statement, with its log proof
    revocations: bytes = b""


@dataclass(frozen=True, slots=True)
class Floors:
    """Lowest versions this host accepts; raised by releases, never by a server."""

    root: int = 1  # TUF root version
    targets: int = 1  # TUF targets version
    epoch: int = 1  # gate epoch
    log_size: int = 0  # leaves that the log had when this executor was released
    verifier: int = 0  # serial of a verifier that may do any work
    # other part → lowest serial that may run
    serials: Mapping[str, int] = field(default_factory=dict)
    revocation: int = 0  # version of the offline revocation role


COMPILED_FLOORS: Final = Floors()
"""What this release was built with; frozen builds set the versions of their day."""


@dataclass(frozen=True, slots=True)
class HostState:
    """What this volunteer allows (see `stoilo.executor.verifier.optin`), and the floors."""

    max_level: str = "pure"  # highest level allowed, by name
    require_review: bool = False  # only tasks that a reviewer signed
    require_public_source: bool = False  # only tasks whose source may be published
    # when not empty, only tasks that carry one of these
    topics: frozenset[str] = frozenset()
    # this host's own limits; None: those of admission and level
    limits: RunLimits | None = None
    # ids of the runtimes unpacked here, for bundles that name none
    flavors: frozenset[str] = frozenset()
    floors: Floors = COMPILED_FLOORS  # lowest versions
    newest_time: int = 0  # of any cosignature ever verified on this host, POSIX s
    # the newest statement that this host has seen; None before any
    revocations: SeenRevocations | None = None
    serial: int = 0  # of this verifier's release; 0 for an unfrozen one, which has none
    # whose frozen runtimes would run the task; empty: what is installed
    platform: str = ""


@dataclass(frozen=True, slots=True)
class VerifiedAdmission:
    """A statement that the gate signed and the log holds."""

    statement: Statement  # the permission
    digest: Digest  # SHA-256 of the statement's PAE
    epoch: GateEpoch  # the gate epoch that signed
    proven: ProvenLeaf  # where in the log it stands


@dataclass(frozen=True, slots=True)
class VerifiedTask:
    """What may now be run, and with what."""

    admission: VerifiedAdmission  # statement, its digest, epoch and place in the log
    level: Level  # the level, of this executor's own release
    limits: RunLimits  # in force: lowest of admission, level and opt-in
    task_module: bytes  # source bytes, as admitted
    arguments: bytes  # encoded arguments, as admitted
    blobs: tuple[bytes, ...]  # in the admitted order

"""What a workunit brings, what the verifier makes of it, and the result file that goes back.

`Work` is one result as it was downloaded: hostile names and files. `HostState` is this
computer, `VerifiedTask` what may then run. Files are opened once, never through links, and
hashed from what was opened, so that there is no moment in which one could be exchanged between
check and use. A result file is

    {"format":"stoilo-result/1", …} LF <frame_bytes of frame> <output_bytes of output>

with `resumed_at` and version 2 where a run went on from a checkpoint. The header is written
outside the jail, and the server compares it with the result that it gave to the reporting host
before it decodes anything else (design §1.8). Frame and output are the jail's: both stay
untrusted, also for the volunteer who carries them.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Literal, Self

import msgspec

from stoilo.audit.format.note import Note, parse_note, render_note
from stoilo.audit.format.proof import ProvenLeaf
from stoilo.core.digests import Digest
from stoilo.core.errors import TrustError
from stoilo.core.levels import Level
from stoilo.core.statement import MAX_REVOCATIONS_BYTES, Statement
from stoilo.core.types import BOUNDS, RunLayer, RunLimits, RunStatus
from stoilo.executor.verifier.installation import OptIn
from stoilo.executor.verifier.statements import SeenRevocations
from stoilo.executor.verifier.targets import LOWEST, Floors, GateEpoch
from stoilo.sandbox.process.channel import MOST_STEPS

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
_DOCUMENTS = (ADMISSION, PROOF, REVOCATIONS)


def blob_name(index: int) -> str:
    """Return the open name of the `index`-th blob of the statement, from 0."""
    return f"blob_{index:03d}"


def open_name_bound(open_name: str) -> int:
    """Return the largest size, bytes, of the file behind `open_name`; 0 if unknown."""
    if re.fullmatch(r"blob_[0-9]{3}", open_name):
        return BOUNDS.blob_bytes
    return _BOUND_OF.get(open_name, 0)


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

    def __exit__(self, *_: object) -> None:
        """Close the descriptor."""
        self.close()


def _open(path: Path, what: str) -> int:
    try:
        return os.open(path, _FLAGS)
    except OSError as error:
        raise TrustError("STO-A057", f"{what} cannot be opened") from error


@dataclass(frozen=True, slots=True)
class Work:
    """One downloaded copy; everything here is hostile."""

    result: str  # BOINC result name
    workunit: str  # workunit name, ``<task id>_<attempt>``
    app: str  # BOINC app under which it came: must be the admission's level
    # (open name, file) of every input; what was read already is bytes
    files: tuple[tuple[str, Source], ...]

    @property
    def task_id(self) -> str:
        """The task that it claims to be of."""
        return self.workunit.rpartition("_")[0]

    @property
    def attempt(self) -> int:
        """The attempt that it claims to be, 0 for none."""
        number = self.workunit.rpartition("_")[2]
        return int(number) if number.isascii() and number.isdigit() else 0

    def open(self, open_name: str) -> InputFile:
        """Open a file of known bound; raises ``STO-A057``."""
        for name, source in self.files:
            if name == open_name:
                bound = open_name_bound(name)
                return InputFile(source, max_bytes=bound, what=name)
        raise TrustError("STO-A057", f"the workunit lacks its file {open_name!r}")

    def read(self, open_name: str) -> bytes:
        """Return a small file's bytes; see `open`."""
        with self.open(open_name) as file:
            return file.read()

    def with_documents(self) -> Work:
        """Return it with what is signed read, once, so that no reading differs."""
        kept = [(n, source) for n, source in self.files if n not in _DOCUMENTS]
        read = [(name, self.read(name)) for name in _DOCUMENTS]
        return replace(self, files=(*read, *kept))

    def blobs(self) -> tuple[str, ...]:
        """Return the open names of the blobs, in order; numbered without gaps."""
        count = sum(name.startswith("blob_") for name, _ in self.files)
        return tuple(blob_name(index) for index in range(count))

    def runtime_archive(self) -> Path | None:
        """Return the file of the flavor's archive, None when the workunit lacks it."""
        found = (file for name, file in self.files if name == FLAVOR)
        return next((file for file in found if isinstance(file, Path)), None)


@dataclass(frozen=True, slots=True)
class HostState(OptIn):
    """What this volunteer allows, what it has learnt, and what runs here."""

    # ids (SHA-256 of the manifest's bytes) of the flavors that can run here
    flavors: frozenset[str] = frozenset()
    floors: Floors = LOWEST
    newest_time: int = 0  # of any cosignature ever verified on this host, POSIX s
    # the newest statement that this host has seen; None before any
    revocations: SeenRevocations | None = None
    serial: int = 0  # of this verifier's release; 0 for an unfrozen one, which has none
    # whose frozen runtimes would run the task; empty: what is installed
    platform: str = ""

    @classmethod
    def under(cls, opt_in: OptIn, *, floors: Floors = LOWEST, serial: int = 0) -> Self:
        """Return the state of a host whose person allows `opt_in`."""
        allowed = {one.name: getattr(opt_in, one.name) for one in fields(opt_in)}
        return cls(**allowed, floors=floors, serial=serial)


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


Format = Literal["stoilo-result/1", "stoilo-result/2"]
FORMAT: Format = "stoilo-result/1"
RESUMED_FORMAT: Format = "stoilo-result/2"


class Disposition(StrEnum):
    """What the executor did with the copy."""

    RAN = "ran"  # verified and run; `status` says how the run ended
    REFUSED = "refused"  # verification failed; `code` says which check
    NOT_FOR_THIS_HOST = "not_for_this_host"  # the volunteer's opt-in says no


class ResultHeader(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What the executor says about one copy, outside of the jail."""

    format: Format  # version of this file format; `render_result` sets it
    result: str  # BOINC result name of the copy
    workunit: str  # its workunit's name
    disposition: Disposition  # ran, refused or not for this host
    # SHA-256 of the admission's DSSE PAE, empty when it did not parse
    admission: str = ""
    attempt: int = 0  # from the admission, 0 when it did not parse
    flavor: str = ""  # flavor id that ran (or would have)
    verifier: str = ""  # version of the verifier
    layers: tuple[str, ...] = ()  # mechanisms of the jail that were active
    # the signed note in the log proof, whole or as `seen_checkpoint` shortens it; empty
    # unless the proof held
    checkpoint: str = ""
    status: RunStatus | None = None  # how the run ended, None unless it ran
    code: str = ""  # stable code, empty when the run returned
    message: str = ""  # one sentence for `code`, without paths or names of the host
    layer: RunLayer | None = None  # who decided, None when the run returned
    limit: str = ""  # the limit that was hit, empty if none
    frame_bytes: int = 0  # length of the frame, bytes
    output_bytes: int = 0  # length of the captured output, bytes
    # how many states the task had yielded when it last went on from a checkpoint, at
    # most `MOST_STEPS`; 0 when it ran in one go. The host's word
    resumed_at: int = 0


@dataclass(frozen=True, slots=True)
class ResultFile:
    """A parsed result file; frame and output are the jail's, hostile."""

    header: ResultHeader
    frame: bytes
    output: bytes


def largest_result(result_bytes: int, output_bytes: int) -> int:
    """Return the largest result file, bytes, under a task's limits."""
    return BOUNDS.result_header_bytes + 1 + result_bytes + output_bytes


def seen_checkpoint(note: bytes) -> str:
    """Return a verified note for `ResultHeader.checkpoint`, at most 4 KiB of it.

    Of a longer one (post-quantum cosignatures are large) the log's own signatures are
    kept: they are what a monitor holds the log to.
    """
    if len(note) > BOUNDS.seen_checkpoint_bytes:
        parsed = parse_note(note)
        origin = parsed.text.partition(b"\n")[0].decode()
        own = tuple(one for one in parsed.signatures if one.name == origin)
        note = render_note(Note(parsed.text, own))
    return note.decode() if len(note) <= BOUNDS.seen_checkpoint_bytes else ""


def render_result(header: ResultHeader, frame: bytes, output: bytes) -> bytes:
    """Return the file's bytes; lengths and format of `header` are set here.

    Raises:
        TrustError: ``STO-X020`` when the header is longer than its bound.
    """
    full = msgspec.structs.replace(
        header,
        format=RESUMED_FORMAT if header.resumed_at else FORMAT,
        frame_bytes=len(frame),
        output_bytes=len(output),
    )
    line = msgspec.json.encode(full)
    if len(line) > BOUNDS.result_header_bytes:
        raise TrustError("STO-X020", "the result header is too long")
    return b"".join((line, b"\n", frame, output))


def parse_result_header(data: bytes) -> ResultHeader:
    """Return the header of a hostile file; `data` may be only its beginning.

    Raises:
        TrustError: ``STO-X020``.
    """
    line, newline, _ = data[: BOUNDS.result_header_bytes + 1].partition(b"\n")
    if not newline:
        raise TrustError("STO-X020", "the result file has no header line")
    try:
        header = msgspec.json.decode(line, type=ResultHeader)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise TrustError("STO-X020", "the result header is not readable") from error
    if msgspec.json.encode(header) != line:  # duplicate keys, spaces, defaults
        raise TrustError("STO-X020", "the result header is not in its one form")
    if not _fits_format(header):
        raise TrustError("STO-X020", "the result header is not of its version")
    return header


def _fits_format(header: ResultHeader) -> bool:
    if header.format == FORMAT:
        return not header.resumed_at
    return header.disposition is Disposition.RAN and 0 < header.resumed_at <= MOST_STEPS


def parse_result(data: bytes) -> ResultFile:
    """Return the parts of a hostile result file.

    Raises:
        TrustError: ``STO-X020`` for a bad header, ``STO-X020`` for lengths that differ
            from what the header says.
    """
    header = parse_result_header(data)
    start = data.index(b"\n") + 1
    middle = start + header.frame_bytes
    end = middle + header.output_bytes
    if min(header.frame_bytes, header.output_bytes) < 0 or end != len(data):
        raise TrustError("STO-X020", "the result file is not as long as it says")
    return ResultFile(header, data[start:middle], data[middle:end])

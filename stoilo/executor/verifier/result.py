"""The result file: one header line written outside the jail, then the jail's bytes.

    {"format":"stoilo-result/1", …} LF <frame_bytes of frame> <output_bytes of output>

A run that was interrupted and went on from a checkpoint says so: version 2 is version 1 and
`resumed_at`. Any other run is written as version 1, which knows nothing of it.

The server compares the header with the copy that it gave to the reporting host before
it decodes anything else (design §1.8). The frame is what the jailed child wrote and the
output what it printed: both stay untrusted, also for the volunteer who carries them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import msgspec

from stoilo.audit.format.note import Note, parse_note, render_note
from stoilo.core.errors import TrustError
from stoilo.core.limits import BOUNDS
from stoilo.core.types import RunLayer, RunStatus
from stoilo.sandbox.process.channel import MOST_STEPS

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
        TrustError: ``STO-X020`` for a bad header, ``STO-X021`` for lengths that differ
            from what the header says.
    """
    header = parse_result_header(data)
    start = data.index(b"\n") + 1
    middle = start + header.frame_bytes
    end = middle + header.output_bytes
    if min(header.frame_bytes, header.output_bytes) < 0 or end != len(data):
        raise TrustError("STO-X021", "the result file is not as long as it says")
    return ResultFile(header, data[start:middle], data[middle:end])

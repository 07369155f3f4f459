"""The ceremony's record: who did what, when, with which key; for paper and for the log.

``transcript.jsonl`` has one line an act. Each line names the lines that were the last ones
when it was written, by their digests, so that a line removed, changed or invented later
shows. Copies of a folder go different ways (each person signs on his own machine); when
they come together their lines are united, and the next line names all their ends.

Trust: transcripts travel on sticks, so they are hostile until `parse_transcript` returned.
They are a record, not a permission: nothing is decided by what they say.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, Literal

import msgspec

from stoilo.core.digests import Digest, content_digest
from stoilo.core.errors import TrustError
from stoilo.core.signatures import parse_strict_json

TRANSCRIPT_FILE: Final = "transcript.jsonl"
MAX_TRANSCRIPT_BYTES: Final = 1024 * 1024
MAX_LINES: Final = 2048
MAX_LINE_BYTES: Final = 8 * 1024

_Digest = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
_DigestOrNone = Annotated[str, msgspec.Meta(pattern=r"\A([0-9a-f]{64})?\Z")]
_Text = Annotated[str, msgspec.Meta(max_length=1024)]


class TranscriptLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One act."""

    # ``init``, ``request``, ``sign``, ``combine``, ``publish``, …
    act: Annotated[str, msgspec.Meta(pattern=r"\A[a-z][a-z-]{0,31}\Z")]
    # by the clock of that machine, Unix seconds
    time: Annotated[int, msgspec.Meta(ge=0, le=2**40)]
    # name in the key that was used, or of the machine's user; empty when unsaid
    who: _Text = ""
    key: _DigestOrNone = ""  # fingerprint digest of that key, empty when none was used
    # digest of what was proposed then, empty when there was nothing
    proposal: _DigestOrNone = ""
    note: _Text = ""  # for people
    # digests of the lines that were the last ones
    previous: Annotated[tuple[_Digest, ...], msgspec.Meta(max_length=64)] = ()
    format: Literal["stoilo-transcript/1"] = "stoilo-transcript/1"


def add_line(
    transcript: bytes,
    act: str,
    now: int,
    *,
    who: str = "",
    key: str = "",
    proposal: str = "",
    note: str = "",
) -> bytes:
    """Return `transcript` (hostile) with one act more; see `TranscriptLine`.

    Raises ``STO-K050`` when what is there does not hold together, or with this line would
    not.
    """
    lines = parse_transcript(transcript)
    followed = {digest for line in lines for digest in line.previous}
    ends = sorted({line_digest(line) for line in lines} - followed)
    line = TranscriptLine(act, now, who, key, proposal, note, tuple(ends))
    data = render_transcript((*lines, line))
    parse_transcript(data)  # what could not be read again is not written
    return data


def parse_transcript(data: bytes) -> tuple[TranscriptLine, ...]:
    """Parse a transcript (hostile) and check that its lines hold together.

    Raises ``STO-K050``; JSON's codes.
    """
    if len(data) > MAX_TRANSCRIPT_BYTES or data.count(b"\n") > MAX_LINES:
        raise TrustError("STO-K050", f"a transcript has at most {MAX_LINES} lines")
    rows = data.split(b"\n")
    if rows.pop():
        raise TrustError("STO-K050", "the transcript's last line is cut off")
    lines: list[TranscriptLine] = []
    known: set[str] = set()
    for number, row in enumerate(rows, start=1):
        line = _parse_line(row, number)
        if not known.issuperset(line.previous) or (known and not line.previous):
            raise TrustError(
                "STO-K050",
                f"line {number} of the transcript does not follow the others",
            )
        digest = content_digest(row)
        # A line repeated could pass for an act done twice.
        if digest in known:
            raise TrustError(
                "STO-K050", f"line {number} of the transcript stands twice"
            )
        known.add(digest)
        lines.append(line)
    return tuple(lines)


def render_transcript(lines: Iterable[TranscriptLine]) -> bytes:
    """Return the file's bytes."""
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def line_digest(line: TranscriptLine) -> Digest:
    """Return the digest by which later lines name this one."""
    return content_digest(msgspec.json.encode(line))


def combine_transcripts(transcripts: Iterable[bytes]) -> bytes:
    """Return the union of transcripts with one beginning; the order does not matter.

    Lines come out by time, and never before those that they follow.

    Raises ``STO-K050`` when they are not of one ceremony.
    """
    given = {
        line_digest(line): line
        for data in transcripts
        for line in parse_transcript(data)
    }
    if sum(not line.previous for line in given.values()) > 1:
        raise TrustError("STO-K050", "the transcripts are of different ceremonies")
    united: dict[Digest, TranscriptLine] = {}
    while len(united) < len(given):
        ready = [
            (line.time, digest)
            for digest, line in given.items()
            if digest not in united and united.keys() >= set(line.previous)
        ]
        if not ready:
            raise TrustError("STO-K050", "a transcript lacks lines that others follow")
        # By time where the order is free, so that any order of copies gives one
        # file.
        _, first = min(ready)
        united[first] = given[first]
    return render_transcript(united.values())


def _parse_line(row: bytes, number: int) -> TranscriptLine:
    """Return one line, which must be in the spelling that its digest is of."""
    what = f"line {number} of the transcript"
    document = parse_strict_json(row, max_bytes=MAX_LINE_BYTES, what=what)
    try:
        line = msgspec.convert(document, type=TranscriptLine)
    except msgspec.ValidationError as error:
        raise TrustError("STO-K050", f"{what} is malformed: {error}") from error
    # Its digest is over the bytes: another spelling would be another line.
    if msgspec.json.encode(line) != row:
        raise TrustError("STO-K050", f"{what} is not spelled as it was written")
    return line

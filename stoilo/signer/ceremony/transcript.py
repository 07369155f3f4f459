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
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from stoilo.core.digests import Digest, content_digest
from stoilo.core.errors import TrustError
from stoilo.core.files import read_bounded
from stoilo.core.signatures import parse_strict_json
from stoilo.signer.key_files import write_private_file

TRANSCRIPT_FILE: Final = "transcript.jsonl"
MAX_TRANSCRIPT_BYTES: Final = 1024 * 1024
MAX_LINES: Final = 2048
MAX_LINE_BYTES: Final = 8 * 1024

_Digest = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
_DigestOrNone = Annotated[str, msgspec.Meta(pattern=r"\A([0-9a-f]{64})?\Z")]
_Text = Annotated[str, msgspec.Meta(max_length=1024)]


class TranscriptLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One act.

    Attributes:
        act: ``init``, ``request``, ``sign``, ``combine``, ``publish``, ….
        time: by the clock of that machine, Unix seconds.
        who: name in the key that was used, or of the machine's user; empty when unsaid.
        key: fingerprint digest of that key, empty when none was used.
        proposal: digest of what was proposed then, empty when there was nothing.
        note: for people.
        previous: digests of the lines that were the last ones.
    """

    act: Annotated[str, msgspec.Meta(pattern=r"\A[a-z][a-z-]{0,31}\Z")]
    time: Annotated[int, msgspec.Meta(ge=0, le=2**40)]
    who: _Text = ""
    key: _DigestOrNone = ""
    proposal: _DigestOrNone = ""
    note: _Text = ""
    previous: Annotated[tuple[_Digest, ...], msgspec.Meta(max_length=64)] = ()
    format: Literal["stoilo-transcript/1"] = "stoilo-transcript/1"


def append_line(
    folder: Path,
    act: str,
    now: int,
    *,
    who: str = "",
    key: str = "",
    proposal: str = "",
    note: str = "",
) -> TranscriptLine:
    """Append an act to `folder`'s transcript, durably; returns the line.

    Raises ``STO-K077`` when what is there does not hold together.
    """
    lines = read_transcript(folder)
    line = TranscriptLine(
        act=act,
        time=now,
        who=who,
        key=key,
        proposal=proposal,
        note=note,
        previous=_ends(lines),
    )
    write_transcript(folder, (*lines, line))
    return line


def read_transcript(folder: Path) -> tuple[TranscriptLine, ...]:
    """Return the transcript of `folder`, empty when there is none; raises ``STO-K077``."""
    try:
        data = read_bounded(folder / TRANSCRIPT_FILE, MAX_TRANSCRIPT_BYTES)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise TrustError("STO-K077", f"{TRANSCRIPT_FILE} cannot be read") from error
    return parse_transcript(data)


def write_transcript(folder: Path, lines: Iterable[TranscriptLine]) -> None:
    """Write the whole transcript of `folder`, atomically; raises ``STO-K077``."""
    data = render_transcript(lines)
    parse_transcript(data)  # what could not be read again is not written
    write_private_file(folder / TRANSCRIPT_FILE, data)


def parse_transcript(data: bytes) -> tuple[TranscriptLine, ...]:
    """Parse a transcript (hostile) and check that its lines hold together.

    Raises ``STO-K077``; JSON's codes.
    """
    if len(data) > MAX_TRANSCRIPT_BYTES or data.count(b"\n") > MAX_LINES:
        raise TrustError("STO-K077", f"a transcript has at most {MAX_LINES} lines")
    rows = data.split(b"\n")
    if rows.pop():
        raise TrustError("STO-K077", "the transcript's last line is cut off")
    lines: list[TranscriptLine] = []
    known: set[str] = set()
    for number, row in enumerate(rows, start=1):
        line = _parse_line(row, number)
        if not known.issuperset(line.previous) or (known and not line.previous):
            raise TrustError(
                "STO-K077",
                f"line {number} of the transcript does not follow the others",
            )
        digest = content_digest(row)
        # A line repeated could pass for an act done twice.
        if digest in known:
            raise TrustError(
                "STO-K077", f"line {number} of the transcript stands twice"
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


def transcript_digest(lines: Iterable[TranscriptLine]) -> Digest:
    """Return the digest of the whole file: what the release's log entry names."""
    return content_digest(render_transcript(lines))


def combine_transcripts(
    transcripts: Iterable[tuple[TranscriptLine, ...]],
) -> tuple[TranscriptLine, ...]:
    """Return the union of transcripts with one beginning; the order does not matter.

    Lines come out by time, and never before those that they follow.

    Raises ``STO-K077`` when they are not of one ceremony.
    """
    given = {line_digest(line): line for lines in transcripts for line in lines}
    if sum(not line.previous for line in given.values()) > 1:
        raise TrustError("STO-K077", "the transcripts are of different ceremonies")
    united: dict[Digest, TranscriptLine] = {}
    while len(united) < len(given):
        ready = [
            (line.time, digest)
            for digest, line in given.items()
            if digest not in united and united.keys() >= set(line.previous)
        ]
        if not ready:
            raise TrustError("STO-K077", "a transcript lacks lines that others follow")
        # By time where the order is free, so that any order of copies gives one
        # file.
        _, first = min(ready)
        united[first] = given[first]
    return tuple(united.values())


def _ends(lines: tuple[TranscriptLine, ...]) -> tuple[str, ...]:
    followed = {digest for line in lines for digest in line.previous}
    digests = (line_digest(line) for line in lines)
    return tuple(sorted(digest for digest in digests if digest not in followed))


def _parse_line(row: bytes, number: int) -> TranscriptLine:
    """Return one line, which must be in the spelling that its digest is of."""
    what = f"line {number} of the transcript"
    document = parse_strict_json(row, max_bytes=MAX_LINE_BYTES, what=what)
    try:
        line = msgspec.convert(document, type=TranscriptLine)
    except msgspec.ValidationError as error:
        raise TrustError("STO-K077", f"{what} is malformed: {error}") from error
    # Its digest is over the bytes: another spelling would be another line.
    if msgspec.json.encode(line) != row:
        raise TrustError("STO-K077", f"{what} is not spelled as it was written")
    return line

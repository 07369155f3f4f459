"""What a monitor looks for, and what it has to say: one finding at a time. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from stoilo.audit.format.facts import MentionKind
from stoilo.audit.format.proof import LeafKind
from stoilo.audit.format.records import Mention, parse_mention, task_commitment
from stoilo.audit.log.seen import result_commitment
from stoilo.core.errors import UsageError


class Severity(StrEnum):
    """How bad it is."""

    NOTICE = "notice"  # asked for, or good to know
    ALARM = "alarm"  # somebody must look
    PROOF = "proof"  # the log has misbehaved, and anybody can check it


class FindingKind(StrEnum):
    """What was found."""

    MATCH = "match"  # a watch
    SUBMITTER = "submitter"  # one not seen before
    UNKNOWN_SUBMITTER = "unknown_submitter"  # one not on the list of known ones
    KEY = "key"  # born or died
    UNEXPLAINED = "unexplained"  # an admission without its record
    RECORD_MISSING = "record_missing"
    RECORD_WRONG = "record_wrong"  # not the leaf's, or it contradicts the log
    LEAF_UNKNOWN = "leaf_unknown"  # of no form that this version knows
    WENT_BACK = "went_back"  # an older checkpoint, or none
    SILENCE = "silence"
    SEEN = "seen"  # what an executor saw does not fit
    UNREADABLE = "unreadable"  # the log cannot be verified or reached
    FORK = "fork"  # two histories


class Finding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One finding; in the state and for scripts it is one JSON object."""

    kind: FindingKind  # what was found
    severity: Severity  # how bad it is
    message: str  # one or two sentences, ASCII or hostile text made harmless
    code: str = ""  # stable code, empty for notices
    place: int = -1  # leaf it is about, -1 for none
    leaf: str = ""  # kind of that leaf, empty for none
    digest: str = ""  # that it names, empty for none
    time: int = 0  # of the leaf, POSIX seconds as the log claims; 0 for none
    watch: str = ""  # the watch that matched, empty for none
    proof: str = ""  # text of a proof of misbehaviour, empty for none


_MAX_FILE_BYTES: Final = 16 * 1024 * 1024
_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_NAMED: Final = {"task": task_commitment, "result": result_commitment}
Watch = Mention | LeafKind


class WatchList:
    """Watches under the texts in which they were given."""

    def __init__(self, names: Mapping[Watch, str] | None = None) -> None:
        self._names = dict(names or {})

    def find(self, said: Iterable[Watch]) -> tuple[str, ...]:
        """Return the watches for any of these, sorted."""
        return tuple(sorted(self._names[one] for one in {*said} & self._names.keys()))


def parse_watches(texts: Sequence[str]) -> WatchList:
    """Return the watches that a user gave; ``@FILE`` is read.

    Raises:
        UsageError: ``STO-L063``.
    """
    lines = [line for text in texts for line in _expand(text)]
    return WatchList({_parse(line): line for line in lines})


def parse_commitments(texts: Sequence[str]) -> frozenset[str]:
    """Return the submitters that a user named as known: 64 hex digits or ``@FILE``.

    Raises:
        UsageError: ``STO-L063``.
    """
    prefix = f"{MentionKind.COMMITMENT}:"
    lines = [line.removeprefix(prefix) for text in texts for line in _expand(text)]
    for line in lines:
        _parse(prefix + line)
    return frozenset(lines)


def _parse(text: str) -> Watch:
    name, _, value = text.partition(":")
    if name in _NAMED and _ID.fullmatch(value):
        return Mention(MentionKind.COMMITMENT, _NAMED[name](value))
    found = LeafKind(value) if name == "kind" and value in set(LeafKind) else None
    watch = found or parse_mention(name, value)
    if watch is None:
        raise UsageError(
            "STO-L063",
            f"not something to watch for: {text[:80]!r}",
            hint="commitment:HEX, digest:HEX, code:STO-R052, key:HEX, kind:NAME, @FILE",
        )
    return watch


def _expand(text: str) -> list[str]:
    """Return the lines of ``@FILE``, or the text itself."""
    if not text.startswith("@"):
        return [text]
    try:
        with Path(text[1:]).open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(
            "STO-L063", f"the watches cannot be read: {error.strerror}"
        ) from error
    if len(data) > _MAX_FILE_BYTES:
        raise UsageError("STO-L063", "a file of watches has at most 16 MiB")
    lines = data.decode(errors="replace").split("\n")
    return [line for raw in lines if (line := raw.partition("#")[0].strip())]


@dataclass(frozen=True, slots=True)
class MonitorSettings:
    """What to look for, and how long to wait before saying so."""

    watches: WatchList = field(default_factory=WatchList)  # what to tell about
    # commitments of the submitters that are expected; None tells about each new one
    # instead
    known: frozenset[str] | None = None
    # an admission must be explained, and a record shown, within so long, s
    explain_s: int = 900
    # a log without a sign of life for longer is silent, s. Ours issues a revocation
    # statement at least every 12 h.
    silence_s: int = 86_400
    # leaves that one poll reads; a log that claims more is not believed
    most_new: int = 1 << 27

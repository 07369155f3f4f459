"""What a monitor has to say: one finding at a time, for people and for machines. Pure."""

from __future__ import annotations

from enum import StrEnum

import msgspec


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
    POLICY = "policy"  # the monitor's own was changed
    FORK = "fork"  # two histories


class Finding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One finding.

    Attributes:
        kind: what was found.
        severity: how bad it is.
        message: one or two sentences, ASCII or hostile text made harmless.
        code: stable code, empty for notices.
        place: leaf it is about, -1 for none.
        leaf: kind of that leaf, empty for none.
        digest: that it names, empty for none.
        time: of the leaf, POSIX seconds as the log claims; 0 for none.
        watch: the watch that matched, empty for none.
        proof: text of a proof of misbehaviour, empty for none.
    """

    kind: FindingKind
    severity: Severity
    message: str
    code: str = ""
    place: int = -1
    leaf: str = ""
    digest: str = ""
    time: int = 0
    watch: str = ""
    proof: str = ""


def render_finding(finding: Finding) -> bytes:
    """Return a finding as one JSON object."""
    return msgspec.json.encode(finding)


def parse_finding(data: bytes) -> Finding:
    """Return a finding of our own state; raises `msgspec.MsgspecError`."""
    return msgspec.json.decode(data, type=Finding)

"""Plain words for what the log says, and the commands that check it. Pure.

Every text here is ours, none is foreign.
"""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from typing import assert_never

from stoilo.audit.format.facts import (
    FlavorRecord,
    KeyRecord,
    LevelRecord,
    OperatorRecord,
    OutcomeRecord,
    PolicyRecord,
    Record,
    RefusalsRecord,
    ReleaseRecord,
    RetentionRecord,
    ReviewRecord,
    RevocationRecord,
    WorkunitRecord,
)
from stoilo.core.types import KIB, MIB
from stoilo.web.archive import Entry
from stoilo.web.timeline import Timeline

_STATES = {
    "succeeded": "It succeeded: enough results agreed.",
    "user_error": "It ended with an error of its own code.",
    "system_error": "It ended without a result; the code says why.",
    "expired": "Its time ended before enough results agreed.",
    "cancelled": "It was cancelled.",
}
_ACTS = {
    "server_started": "The server was started.",
    "server_stopped": "The server was stopped.",
    "token_issued": "Somebody was given access.",
    "token_revoked": "Somebody's access was withdrawn.",
    "task_cancelled": "The operator cancelled a task.",
    "reviewer_enrolled": "A reviewer was enrolled.",
    "account_suspended": "An account was suspended: it may submit nothing.",
    "account_resumed": "A suspended account may submit again.",
    "account_changed": "What an account, or a group of them, may do or use was changed.",
}
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def render_time_attribute(seconds: int) -> str:
    """Return POSIX seconds for an HTML ``datetime`` attribute; empty past year 9999."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return ""


def render_bytes(count: int) -> str:
    """Return a size: ``512 MiB``, ``1.5 KiB``, ``17 bytes``."""
    for unit, size in (("GiB", KIB * MIB), ("MiB", MIB), ("KiB", KIB)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return render_amount(count, "byte")


def render_seconds(count: int) -> str:
    """Return a time span: ``60 s``, ``2 min``, ``7 days``."""
    for unit, size in (("day", _DAY), ("hour", _HOUR)):
        if count >= size and count % size == 0:
            return render_amount(count // size, unit)
    if count > 2 * _MINUTE and count % _MINUTE == 0:
        return f"{count // _MINUTE} min"
    return f"{count} s"


def render_amount(count: int, noun: str) -> str:
    """Return ``1 byte``-like counts: ``17 bytes``."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def describe_state(outcome: OutcomeRecord | None) -> str:
    """Return what became of a task."""
    if outcome is None:
        return "It has no final outcome yet."
    return _STATES.get(outcome.state, "It has ended.")


def describe_entry(entry: Entry) -> str:
    """Return one sentence about an entry."""
    if entry.record is not None:
        return _describe(entry.record)
    if entry.fault:
        return "It cannot be shown: see its page."
    return "The gate permitted one attempt of a task."


def _describe(record: Record) -> str:  # noqa: C901, PLR0911, PLR0912 - a case a kind
    match record:
        case WorkunitRecord():
            return _describe_workunit(record)
        case OutcomeRecord():
            return describe_state(record)
        case RefusalsRecord():
            many = render_amount(record.count, "submission")
            return f"The gate refused {many} of one researcher."
        case ReviewRecord(decision="signed"):
            return f"A reviewer signed for a source at level {record.level}."
        case ReviewRecord():
            return "A reviewer refused a source."
        case KeyRecord(event="born"):
            return f"A {record.role} key came into use."
        case KeyRecord():
            return f"A {record.role} key is used no more ({record.reason or 'ended'})."
        case PolicyRecord() | LevelRecord():
            return _describe_rule(record)
        case FlavorRecord():
            return f"The flavor {record.name} was {record.change}."
        case ReleaseRecord():
            return (
                f"A release came into force: root {record.root}, targets "
                f"{record.targets}, {render_amount(len(record.parts), 'published part')}."
            )
        case RevocationRecord():
            return _describe_revocation(record)
        case RetentionRecord():
            many = render_amount(record.count, record.what.removesuffix("s"))
            return f"Deleted on purpose: {many} of tasks that had ended."
        case OperatorRecord():
            return _ACTS.get(record.act.value, "The operator acted.")
        case _:
            assert_never(record)


def _describe_workunit(record: WorkunitRecord) -> str:
    if record.state == "withdrawn":
        return f"The admission in entry {record.admission} was not used."
    return (
        f"Attempt {record.attempt} of a task at level {record.level} went out "
        f"as {render_amount(record.redundancy.target_results, 'result')}."
    )


def _describe_rule(record: PolicyRecord | LevelRecord) -> str:
    what = "A policy"
    if isinstance(record, LevelRecord):
        layer = record.name == "language"
        what = "The language layer" if layer else f"The level {record.name}"
    came = "came into force" if record.change == "in_force" else "is in force no more"
    return f"{what} {came}."


def _describe_revocation(record: RevocationRecord) -> str:
    counts = (
        (len(record.epochs), "epoch"),
        (len(record.digests), "digest"),
        (len(record.flavors), "flavor"),
    )
    denied = [render_amount(count, noun) for count, noun in counts if count]
    if not denied and record.min_epoch <= 1:
        return f"Revocation statement {record.sequence}: nothing is withdrawn."
    old = f"epochs below {record.min_epoch}" if record.min_epoch > 1 else ""
    listed = ", ".join([*denied, *([old] if old else [])])
    return f"Revocation statement {record.sequence}: {listed} withdrawn."


def summarize_task(timeline: Timeline) -> str:
    """Return the one sentence at the top of a task's page."""
    if not timeline.attempts:
        return "The log names this task, but no attempt of it was admitted."
    record = timeline.attempts[-1].record
    many = render_amount(record.redundancy.target_results, "volunteer")
    return (
        f"A function of one researcher, run at level {record.level} "
        f"on the computers of {many}."
    )


# -- commands, so that a reader need not believe the page -----------------------------


def log_command(url: str) -> str:
    """Return the command that verifies the whole log of the server at `url`."""
    return f"stoilo audit verify {shlex.quote(url)} --policy policy.txt"


def check_command(url: str, index: int, *, record: str = "", source: str = "") -> str:
    """Return the one command, a line an option, that verifies an entry and its meaning.

    Args:
        url: of the server, with final slash.
        index: place of the entry.
        record: digest of its record; empty when it has none.
        source: digest of its published source; empty when there is none.
    """
    proof = shlex.quote(f"{url}audit/entry/{index}.tlog-proof")
    words = [f"stoilo audit check {proof} --policy policy.txt"]
    if record:
        words.append(f"--record {shlex.quote(f'{url}audit/records/{record}')}")
    if source:
        words.append(f"--source {shlex.quote(f'{url}audit/source/{source}')}")
    return " \\\n    ".join(words)


def show_command(url: str, name: str) -> str:
    """Return the command that shows a task or entry, each proven, without the pages."""
    return f"stoilo audit show {shlex.quote(name)} --data {shlex.quote(url)}"


def proof_name(index: int) -> str:
    """Return the file name of an entry's proof."""
    return f"entry-{index}.tlog-proof"

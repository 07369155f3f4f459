"""Plain words for what the log says, and the commands that check it. Pure.

Every text here is ours, none is foreign.
"""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from typing import Final, assert_never

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
from stoilo.web.language import gettext, ngettext
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
# Of amounts whose noun comes from a record; every other stands at its call
NOUNS: Final = (
    "day",
    "hour",
    "epoch",
    "digest",
    "flavor",
    "source",
    "argument",
    "salt",
)
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
        return gettext("%(count)s min") % {"count": count // _MINUTE}
    return gettext("%(count)s s") % {"count": count}


def render_amount(count: int, noun: str) -> str:
    """Return ``1 byte``-like counts: ``17 bytes``."""
    return ngettext(*forms_of(noun), count) % {"num": f"{count:,}"}


def forms_of(noun: str) -> tuple[str, str]:
    """Return the two messages of an amount, as catalogues have them."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"%(num)s {noun}", f"%(num)s {plural}"


def describe_state(outcome: OutcomeRecord | None) -> str:
    """Return what became of a task."""
    if outcome is None:
        return gettext("It has no final outcome yet.")
    return gettext(_STATES.get(outcome.state, "It has ended."))


def describe_entry(entry: Entry) -> str:
    """Return one sentence about an entry."""
    if entry.record is not None:
        return _describe(entry.record)
    if entry.fault:
        return gettext("It cannot be shown: see its page.")
    return gettext("The gate permitted one attempt of a task.")


def _describe(record: Record) -> str:  # noqa: C901, PLR0911, PLR0912 - a case a kind
    match record:
        case WorkunitRecord():
            return _describe_workunit(record)
        case OutcomeRecord():
            return describe_state(record)
        case RefusalsRecord():
            many = render_amount(record.count, "submission")
            said = gettext("The gate refused %(many)s of one researcher.")
            return said % {"many": many}
        case ReviewRecord(decision="signed"):
            said = gettext("A reviewer signed for a source at level %(level)s.")
            return said % {"level": record.level}
        case ReviewRecord():
            return gettext("A reviewer refused a source.")
        case KeyRecord(event="born"):
            return gettext("A %(role)s key came into use.") % {"role": record.role}
        case KeyRecord():
            said = gettext("A %(role)s key is used no more (%(why)s).")
            return said % {"role": record.role, "why": record.reason or "ended"}
        case PolicyRecord() | LevelRecord():
            return _describe_rule(record)
        case FlavorRecord():
            came = gettext("The flavor %(name)s was released.")
            gone = gettext("The flavor %(name)s was withdrawn.")
            said = came if record.change == "released" else gone
            return said % {"name": record.name}
        case ReleaseRecord():
            parts = render_amount(len(record.parts), "published part")
            numbers = {"root": record.root, "targets": record.targets, "parts": parts}
            return (
                gettext(
                    "A release came into force: root %(root)s, targets %(targets)s, "
                    "%(parts)s."
                )
                % numbers
            )
        case RevocationRecord():
            return _describe_revocation(record)
        case RetentionRecord():
            many = render_amount(record.count, record.what.removesuffix("s"))
            said = gettext("Deleted on purpose: %(many)s of tasks that had ended.")
            return said % {"many": many}
        case OperatorRecord():
            return gettext(_ACTS.get(record.act.value, "The operator acted."))
        case _:
            assert_never(record)


def _describe_workunit(record: WorkunitRecord) -> str:
    if record.state == "withdrawn":
        said = gettext("The admission in entry %(entry)s was not used.")
        return said % {"entry": record.admission}
    said = gettext(
        "Attempt %(attempt)s of a task at level %(level)s went out as %(results)s."
    )
    many = render_amount(record.redundancy.target_results, "result")
    return said % {"attempt": record.attempt, "level": record.level, "results": many}


def _describe_rule(record: PolicyRecord | LevelRecord) -> str:
    what = gettext("A policy")
    if isinstance(record, LevelRecord):
        what = gettext("The level %(name)s") % {"name": record.name}
        what = gettext("The language layer") if record.name == "language" else what
    came = gettext("%(what)s came into force.")
    gone = gettext("%(what)s is in force no more.")
    return (came if record.change == "in_force" else gone) % {"what": what}


def _describe_revocation(record: RevocationRecord) -> str:
    counts = (
        (len(record.epochs), "epoch"),
        (len(record.digests), "digest"),
        (len(record.flavors), "flavor"),
    )
    denied = [render_amount(count, noun) for count, noun in counts if count]
    if not denied and record.min_epoch <= 1:
        said = gettext("Revocation statement %(number)s: nothing is withdrawn.")
        return said % {"number": record.sequence}
    if record.min_epoch > 1:
        denied.append(gettext("epochs below %(epoch)s") % {"epoch": record.min_epoch})
    said = gettext("Revocation statement %(number)s: %(listed)s withdrawn.")
    return said % {"number": record.sequence, "listed": ", ".join(denied)}


def summarize_task(timeline: Timeline) -> str:
    """Return the one sentence at the top of a task's page."""
    if not timeline.attempts:
        return gettext("The log names this task, but no attempt of it was admitted.")
    record = timeline.attempts[-1].record
    many = render_amount(record.redundancy.target_results, "volunteer")
    said = gettext(
        "A function of one researcher, run at level %(level)s on the computers of %(many)s."
    )
    return said % {"level": record.level, "many": many}


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

"""What became of one task, put together from the entries that name it. Pure.

All facts come from the public log; nothing here knows a name, a host or a task's id.
"""

from __future__ import annotations

from dataclasses import dataclass

from stoilo.audit.format.facts import (
    MentionKind,
    OutcomeRecord,
    RevocationRecord,
    WorkunitRecord,
)
from stoilo.audit.format.records import Mention
from stoilo.web.archive import Entry, View

_ISSUERS = ("offline", "online")
_LOOKED_AT = 16  # entries of other kinds may name such a key too


@dataclass(frozen=True, slots=True)
class Denial:
    """A revocation in force that concerns an attempt."""

    entry: Entry  # of the statement
    what: str  # what of the attempt it denies, in plain words


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a task."""

    entry: Entry  # of its workunit's record
    record: WorkunitRecord  # what that says
    # the entry of its admission; None when the log has no such place
    admission: Entry | None
    fault: str  # what does not fit between the two, empty when they do
    denials: tuple[Denial, ...]  # revocations in force now


@dataclass(frozen=True, slots=True)
class Timeline:
    """All that the log says about a task."""

    commitment: str  # the task's public name
    attempts: tuple[Attempt, ...]  # by number, the newest last
    outcome: OutcomeRecord | None  # its final outcome, None while it has none
    decided: int  # place of the outcome's entry; -1 without one
    entries: tuple[Entry, ...]  # the newest entries that name the task, newest first


def read_timeline(view: View, commitment: str) -> Timeline | None:
    """Return what the log says about a task, None when it says nothing."""
    entries = view.find(Mention(MentionKind.COMMITMENT, commitment))
    if not entries:
        return None
    statements = _statements_in_force(view)
    attempts = [
        _attempt(view, entry, entry.record, statements)
        for entry in entries
        if isinstance(entry.record, WorkunitRecord) and entry.record.task == commitment
    ]
    attempts.sort(key=lambda attempt: (attempt.record.attempt, attempt.entry.index))
    outcome, decided = _find_outcome(entries, commitment)
    return Timeline(commitment, tuple(attempts), outcome, decided, tuple(entries))


def _find_outcome(
    entries: list[Entry], commitment: str
) -> tuple[OutcomeRecord | None, int]:
    """Return a task's outcome and its place among the entries that name it."""
    for entry in entries:
        if isinstance(entry.record, OutcomeRecord) and entry.record.task == commitment:
            return entry.record, entry.index
    return None, -1


def find_denials(record: WorkunitRecord, statements: list[Entry]) -> tuple[Denial, ...]:
    """Return which of the revocation statements deny an attempt, and why.

    The source counts only where it was published: a salted commitment matches nothing.
    """
    found = []
    for entry in statements:
        if isinstance(entry.record, RevocationRecord):
            denied = _denied(record, entry.record)
            found += [Denial(entry, what) for what in denied]
    return tuple(found)


def _denied(record: WorkunitRecord, denial: RevocationRecord) -> list[str]:
    """Return what of an attempt one statement denies."""
    named = {
        "its source": record.source,
        f"the level {record.level}": record.level_digest,
        "the policy that admitted it": record.policy_digest,
        "the version of the language layer": record.language_digest,
        "its flavor": record.flavor,
        "its researcher": record.submitter,
    }
    digests = {*denial.digests, *denial.flavors}
    found = [what for what, digest in named.items() if digest in digests]
    found += ["one of its libraries"] if digests & {*record.libraries} else []
    if record.epoch in denial.epochs or record.epoch < denial.min_epoch:
        found.append(f"every admission of epoch {record.epoch}")
    return found


def _statements_in_force(view: View) -> list[Entry]:
    """Return the newest offline and online revocation: both together are in force."""
    found: list[Entry] = []
    for issuer in _ISSUERS:
        entries = view.find(Mention(MentionKind.KEY, issuer), limit=_LOOKED_AT)
        statements = [
            one for one in entries if isinstance(one.record, RevocationRecord)
        ]
        # Each statement repeats all that its issuer withdrew before: the newest is
        # enough.
        found += statements[:1]
    return found


def _attempt(
    view: View, entry: Entry, record: WorkunitRecord, statements: list[Entry]
) -> Attempt:
    admission, fault = view.entry(record.admission), ""
    if admission is None:
        fault = f"entry {record.admission}, which it explains, does not exist"
    elif admission.hash != record.admission_leaf:
        fault = f"entry {record.admission} is not the admission that it explains"
    denials = find_denials(record, statements)
    return Attempt(entry, record, admission, fault, denials)

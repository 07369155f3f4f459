"""What a visitor typed into the search field: hostile text to one kind of question. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stoilo.audit.format.facts import MentionKind
from stoilo.audit.format.records import Mention, task_commitment
from stoilo.core.errors import UsageError
from stoilo.web.archive import Entry, View

MAX_QUERY_CHARS = 128
_INDEX = re.compile(r"0|[1-9][0-9]{0,17}")
_HEX64 = re.compile(r"[0-9a-f]{64}")
_CODE = re.compile(r"STO-[A-Z][0-9]{3}")
_WORD = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Query:
    """One question to the log."""

    index: int | None  # a place in the log, if a number was asked for
    # else, what entries may mention; any of them is a hit
    mentions: tuple[Mention, ...] = ()


def parse_query(text: str) -> Query:
    """Return what `text` asks for; raises ``STO-L063`` when it asks for nothing known."""
    word = text.strip()
    if len(word) > MAX_QUERY_CHARS:
        raise _unknown()
    if _INDEX.fullmatch(word):
        return Query(int(word))
    if _CODE.fullmatch(word.upper()):
        return Query(None, (Mention(MentionKind.CODE, word.upper()),))
    if _HEX64.fullmatch(word.lower()):
        kinds = (MentionKind.COMMITMENT, MentionKind.DIGEST, MentionKind.KEY)
        return Query(None, tuple(Mention(kind, word.lower()) for kind in kinds))
    if _WORD.fullmatch(word):
        task = Mention(MentionKind.COMMITMENT, task_commitment(word))
        return Query(None, (task, Mention(MentionKind.KEY, word.lower())))
    raise _unknown()


def name_task(text: str) -> str:
    """Return the commitment of a task that a path names by its id or commitment.

    Raises:
        UsageError: ``STO-L063``.
    """
    if _HEX64.fullmatch(text):
        return text
    if _WORD.fullmatch(text):
        return task_commitment(text)
    raise _unknown()


def run_query(
    view: View, query: Query, limit: int, before: int | None = None
) -> list[Entry]:
    """Return the newest entries that answer `query`, newest first, at most `limit`.

    Args:
        view: the log.
        query: the question.
        limit: the most entries.
        before: only places below this, to read on; None for all.
    """
    if query.index is not None:
        entry = view.entry(query.index)
        return [] if entry is None else [entry]
    found = {
        entry.index: entry
        for mention in query.mentions
        for entry in view.find(mention, before=before, limit=limit)
    }
    return [found[index] for index in sorted(found, reverse=True)][:limit]


def _unknown() -> UsageError:
    return UsageError(
        "STO-L063",
        "this is nothing that the log can be searched for",
        hint="give an entry's number, a task's id, a digest or commitment of 64 digits, "
        "a code like STO-P034 or a key's role",
    )

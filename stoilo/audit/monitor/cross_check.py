"""Compare the checkpoints that executors saw with the monitor's own hashes."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from stoilo.audit.format.facts import MentionKind
from stoilo.audit.format.merkle import Checkpoint
from stoilo.audit.format.note import MAX_NOTE_BYTES
from stoilo.audit.format.policy import log_keys_of, open_checkpoint
from stoilo.audit.format.records import Mention
from stoilo.audit.log.seen import (
    PAGE_ROWS,
    SeenRow,
    open_seen,
    parse_seen_page,
    render_seen_row,
)
from stoilo.audit.monitor.finding import (
    Finding,
    FindingKind,
    Severity,
)
from stoilo.audit.monitor.inspection import Look
from stoilo.audit.witness.protocol import hash_origin
from stoilo.core.errors import TrustError, UnreachableError

_MOST_PAGES = 1024
"""Pages that one poll reads: a server that never ends must not keep us from the log."""

_MOST_AHEAD = 10_000
"""Rows, of 4 KiB at most, that wait for the log to get there."""


class SeenCheck:
    """One pass over the rows that were not checked yet.

    A note that contradicts our hashes is proven and reported in the same change.
    """

    def __init__(
        self,
        look: Look,
        # signed note → finding with the proof that it contradicts our hashes
        prove: Callable[[bytes], Finding],
    ) -> None:
        self._look = look
        self._prove = prove
        self._state = look.state
        self._ahead = 0

    def run(self) -> None:
        """Check what is new, and what could not be checked before.

        Raises:
            UnreachableError: ``STO-L002``.
            TrustError: ``STO-L010`` a page is malformed.
        """
        self._look_again()
        query = "SELECT count(*) FROM ahead"
        (self._ahead,) = self._state.connection.execute(query).fetchone()
        for _ in range(_MOST_PAGES):
            fresh = self._next_rows()
            if not fresh:
                return
            start = self._state.memory.seen
            with self._state.change():
                for place, row in enumerate(fresh, start):
                    self._check(place, row)
                self._state.remember(seen=start + len(fresh))
                self._state.settle("seen")
            if (start + len(fresh)) % PAGE_ROWS:
                return

    def _next_rows(self) -> tuple[SeenRow, ...]:
        """Return the unchecked rows of the page where we are."""
        number, offset = divmod(self._state.memory.seen, PAGE_ROWS)
        data = self._look.source.seen(number)
        rows = () if data is None else parse_seen_page(data)
        if len(rows) < offset:
            with self._state.change():
                text = f"{offset - len(rows)} published rows are gone again"
                if self._state.is_due("seen", self._look.now):
                    self._state.alarm(FindingKind.SEEN, "STO-L134", text)
        return rows[offset:]

    def _check(self, place: int, row: SeenRow) -> None:
        """Check one row now, or later if it is ahead of us."""
        self._match(place, row)
        try:
            shown = open_seen(row.checkpoint, self._look.policy)
        except TrustError as error:
            self._alarm(f"row {place} holds no checkpoint: {error.message}")
            return
        if shown.origin != self._look.origin:  # the policy may trust several logs
            self._alarm(f"row {place} is of another log, {shown.origin!r}")
            return
        if shown.size > self._state.memory.size:
            self._wait_for(place, row)
            return
        self._compare(place, row, shown)

    def _wait_for(self, place: int, row: SeenRow) -> None:
        """Keep a row until the log gets there, unless too many wait already."""
        # Rows are hostile: a signed future checkpoint would otherwise fill our disk.
        if self._ahead >= _MOST_AHEAD:
            self._alarm(f"row {place} is one too many that the log is behind of")
            return
        self._ahead += 1
        values = (place, render_seen_row(row), self._look.now)
        self._state.connection.execute("INSERT INTO ahead VALUES (?, ?, ?)", values)

    def _compare(self, place: int, row: SeenRow, shown: Checkpoint) -> None:
        """Compare a row within our tree: its root, its admission, its sisters'."""
        if self._state.mirror.root_at(shown.size) != shown.root:
            self._state.report(self._prove(row.checkpoint.encode()))
            return
        connection = self._state.connection
        query = "SELECT 1 FROM admission WHERE digest = ? AND place < ?"
        held = connection.execute(query, (bytes.fromhex(row.admission), shown.size))
        if held.fetchone() is None:
            self._alarm(
                f"row {place} rests on admission {row.admission}, which the first "
                f"{shown.size} leaves do not hold"
            )
        query = "SELECT admission FROM replica WHERE task = ? AND attempt = ?"
        sister = connection.execute(query, (row.task, row.attempt)).fetchone()
        if sister is None:
            query = "INSERT INTO replica VALUES (?, ?, ?)"
            connection.execute(query, (row.task, row.attempt, row.admission))
        elif sister[0] != row.admission:
            self._alarm(
                f"row {place} rests on another admission than the other results of "
                f"attempt {row.attempt} of task {row.task}"
            )

    def _look_again(self) -> None:
        """Compare rows that were ahead of us; raise the alarm for what stays hidden."""
        with self._state.change():
            connection = self._state.connection
            query = "SELECT place, row, since FROM ahead ORDER BY place"
            for place, data, since in connection.execute(query).fetchall():
                row = msgspec.json.decode(data, type=SeenRow)
                shown = open_seen(row.checkpoint, self._look.policy)
                late = self._look.now - since > self._look.settings.explain_s
                if shown.size <= self._state.memory.size:
                    self._compare(place, row, shown)
                elif late:
                    self._alarm(
                        f"row {place} shows a signed checkpoint of {shown.size} leaves "
                        "that the log does not show"
                    )
                else:
                    continue
                connection.execute("DELETE FROM ahead WHERE place = ?", (place,))

    def _match(self, place: int, row: SeenRow) -> None:
        """Report the watches that a row fulfils: its result, task or admission."""
        found = self._look.settings.watches.find(
            (
                Mention(MentionKind.COMMITMENT, row.result),
                Mention(MentionKind.COMMITMENT, row.task),
                Mention(MentionKind.DIGEST, row.admission),
            )
        )
        for watch in found:
            message = f"row {place} of the seen checkpoints matches {watch}"
            self._state.report(
                Finding(FindingKind.MATCH, Severity.NOTICE, message, watch=watch)
            )

    def _alarm(self, message: str) -> None:
        self._state.alarm(FindingKind.SEEN, "STO-L138", message)


def witness_url(prefix: str, origin: str) -> str:
    """Return where a witness shows the newest checkpoint of a log that it cosigned."""
    return f"{prefix.rstrip('/')}/{hash_origin(origin)}/checkpoint"


def check_witnesses(
    look: Look,  # at a log that was seen before
    # signed note → finding with the proof that it contradicts our hashes
    prove: Callable[[bytes], Finding],
    # (URL, most bytes) → hostile bytes, None when there are none
    fetch: Callable[[str, int], bytes | None],
) -> None:
    """Ask each witness of the policy; report contradictions, and what stays hidden from us."""
    state, origin = look.state, look.origin
    for witness in look.policy.witnesses:
        if not witness.url:
            continue
        try:
            note = fetch(witness_url(witness.url, origin), MAX_NOTE_BYTES)
            keys = log_keys_of(look.policy)
            shown = open_checkpoint(note, keys).checkpoint if note else None
        except (UnreachableError, TrustError):
            continue  # a witness's rubbish is not the log's
        if note is None or shown is None or shown.origin != origin:
            continue
        name = f"hidden {witness.name} "
        with state.change():
            if shown.size <= state.memory.size:
                state.settle(name)
                if state.mirror.root_at(shown.size) != shown.root:
                    state.report(prove(note))
            elif state.is_due(name, look.now, look.settings.explain_s):
                text = f"cosigned {shown.size} leaves, which the log hides"
                text = f"witness {witness.name} {text}"
                state.alarm(FindingKind.SEEN, "STO-L138", text)

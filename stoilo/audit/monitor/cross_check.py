"""Compare the checkpoints that executors saw with the monitor's own hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

from stoilo.audit.format.merkle import Checkpoint
from stoilo.audit.format.note import MAX_NOTE_BYTES
from stoilo.audit.format.policy import LogPolicy, Witness, log_keys_of, open_checkpoint
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
    MonitorSettings,
    Severity,
    WatchKind,
)
from stoilo.audit.monitor.state import MonitorState
from stoilo.audit.read.source import LogSource
from stoilo.core.errors import TrustError, UnreachableError

_MOST_PAGES = 1024
"""Pages that one poll reads: a server that never ends must not keep us from the log."""

_MOST_AHEAD = 10_000
"""Rows, of 4 KiB at most, that wait for the log to get there."""

_MOST_TOLD = 1000
"""Alarms of one poll; the others are counted. Matches are all told."""


class SeenCheck:
    """One pass over the rows that were not checked yet.

    A note that contradicts our hashes is proven and reported in the same change.

    Args:
        source: of the rows, hostile.
        policy: whose signature a row's checkpoint needs.
        state: the monitor's memory; each page is one change of it.
        settings: what its owner wants.
        prove: signed note → finding with the proof that it contradicts our hashes.
    """

    def __init__(
        self,
        source: LogSource,
        policy: LogPolicy,
        state: MonitorState,
        settings: MonitorSettings,
        prove: Callable[[bytes], Finding],
    ) -> None:
        self._prove = prove
        self._origin = state.memory.note.partition(b"\n")[0].decode()
        self._source = source
        self._policy = policy
        self._state = state
        self._settings = settings
        self._told = 0
        self._ahead = 0

    def run(self, now: int) -> None:
        """Check what is new, and what could not be checked before.

        Raises:
            UnreachableError: ``STO-L002``.
            TrustError: ``STO-L010`` a page is malformed.
        """
        self._look_again(now)
        query = "SELECT count(*) FROM ahead"
        (self._ahead,) = self._state.connection.execute(query).fetchone()
        try:
            self._read_pages(now)
        finally:
            self._sum_up()

    def _read_pages(self, now: int) -> None:
        """Check the pages that are new, as many as one poll reads."""
        for _ in range(_MOST_PAGES):
            fresh = self._next_rows()
            if not fresh:
                return
            start = self._state.memory.seen
            with self._state.change():
                for place, row in enumerate(fresh, start):
                    self._check(place, row, now)
                self._state.remember(seen=start + len(fresh), seen_lost=False)
            if (start + len(fresh)) % PAGE_ROWS:
                return

    def _next_rows(self) -> tuple[SeenRow, ...]:
        """Return the unchecked rows of the page where we are."""
        number, offset = divmod(self._state.memory.seen, PAGE_ROWS)
        data = self._source.seen(number)
        rows = () if data is None else parse_seen_page(data)
        if len(rows) < offset and not self._state.memory.seen_lost:
            with self._state.change():
                self._state.remember(seen_lost=True)
                self._alarm(f"{offset - len(rows)} published rows are gone again", -1)
        return rows[offset:]

    def _check(self, place: int, row: SeenRow, now: int) -> None:
        """Check one row now, or later if it is ahead of us."""
        self._match(place, row)
        try:
            shown = open_seen(row.checkpoint, self._policy)
        except TrustError as error:
            self._alarm(f"row {place} holds no checkpoint: {error.message}", place)
            return
        if shown.origin != self._origin:  # the policy may trust several logs
            self._alarm(f"row {place} is of another log, {shown.origin!r}", place)
            return
        if shown.size > self._state.memory.size:
            self._wait_for(place, row, now)
            return
        self._compare(place, row, shown)

    def _wait_for(self, place: int, row: SeenRow, now: int) -> None:
        """Keep a row until the log gets there, unless too many wait already."""
        # Rows are hostile: a signed future checkpoint would otherwise fill our disk.
        if self._ahead >= _MOST_AHEAD:
            self._alarm(f"row {place} is one too many that the log is behind of", place)
            return
        self._ahead += 1
        values = (place, render_seen_row(row), now)
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
                f"{shown.size} leaves do not hold",
                place,
            )
        query = "SELECT admission FROM replica WHERE task = ? AND attempt = ?"
        sister = connection.execute(query, (row.task, row.attempt)).fetchone()
        if sister is None:
            query = "INSERT INTO replica VALUES (?, ?, ?)"
            connection.execute(query, (row.task, row.attempt, row.admission))
        elif sister[0] != row.admission:
            self._alarm(
                f"row {place} rests on another admission than the other results of "
                f"attempt {row.attempt} of task {row.task}",
                place,
            )

    def _look_again(self, now: int) -> None:
        """Compare rows that were ahead of us; raise the alarm for what stays hidden."""
        with self._state.change():
            connection = self._state.connection
            query = "SELECT place, row, since FROM ahead ORDER BY place"
            for place, data, since in connection.execute(query).fetchall():
                row = msgspec.json.decode(data, type=SeenRow)
                shown = open_seen(row.checkpoint, self._policy)
                late = now - since > self._settings.explain_s
                if shown.size <= self._state.memory.size:
                    self._compare(place, row, shown)
                elif late:
                    self._alarm(
                        f"row {place} shows a signed checkpoint of {shown.size} leaves "
                        "that the log does not show",
                        place,
                    )
                else:
                    continue
                connection.execute("DELETE FROM ahead WHERE place = ?", (place,))

    def _match(self, place: int, row: SeenRow) -> None:
        """Report the watches that a row fulfils: its result, task or admission."""
        found = self._settings.watches.find(
            (WatchKind.COMMITMENT, row.result),
            (WatchKind.COMMITMENT, row.task),
            (WatchKind.DIGEST, row.admission),
        )
        for watch in found:
            message = f"row {place} of the seen checkpoints matches {watch}"
            self._state.report(
                Finding(FindingKind.MATCH, Severity.NOTICE, message, watch=watch)
            )

    def _alarm(self, message: str, place: int) -> None:
        code = "STO-L137" if place < 0 else "STO-L138"
        self._told += 1
        if self._told <= _MOST_TOLD:
            made = Finding(FindingKind.SEEN, Severity.ALARM, message, code)
            self._state.report(made)

    def _sum_up(self) -> None:
        """Say how many findings were left out."""
        if self._told > _MOST_TOLD:
            message = f"{self._told - _MOST_TOLD} more about seen checkpoints"
            with self._state.change():
                kind = FindingKind.SEEN
                self._state.report(Finding(kind, Severity.ALARM, message, "STO-L138"))


_TOLD = 2**62


def witness_url(prefix: str, origin: str) -> str:
    """Return where a witness shows the newest checkpoint of a log that it cosigned."""
    name = hashlib.sha256(origin.encode()).hexdigest()
    return f"{prefix.rstrip('/')}/{name}/checkpoint"


class WitnessCheck:
    """One look at every witness whose address the policy says.

    Args:
        policy: names the log's keys and the witnesses.
        state: the monitor's memory.
        settings: how long a checkpoint may stay hidden.
        prove: signed note → finding with the proof that it contradicts our hashes.
        fetch: (URL, most bytes) → hostile bytes, None when there are none.
    """

    def __init__(
        self,
        policy: LogPolicy,
        state: MonitorState,
        settings: MonitorSettings,
        prove: Callable[[bytes], Finding],
        fetch: Callable[[str, int], bytes | None],
    ) -> None:
        self._policy = policy
        self._state = state
        self._settings = settings
        self._prove = prove
        self._fetch = fetch

    def run(self, origin: str, now: int) -> None:
        """Ask each witness; report contradictions, and what stays hidden from us."""
        for witness in self._policy.witnesses:
            note = self._ask(witness, origin) if witness.url else None
            if note is not None:
                with self._state.change():
                    self._compare(witness.name, origin, note, now)

    def _ask(self, witness: Witness, origin: str) -> bytes | None:
        try:
            return self._fetch(witness_url(witness.url, origin), MAX_NOTE_BYTES)
        except UnreachableError:
            return None

    def _compare(self, name: str, origin: str, note: bytes, now: int) -> None:
        try:
            shown = open_checkpoint(note, log_keys_of(self._policy)).checkpoint
        except TrustError:
            return  # a witness's rubbish is not the log's
        if shown.origin != origin:
            return
        hidden = dict(self._state.memory.hidden)
        since = hidden.pop(name, now)
        if shown.size <= self._state.memory.size:
            if self._state.mirror.root_at(shown.size) != shown.root:
                self._state.report(self._prove(note))
        elif now - since > self._settings.explain_s:
            message = (
                f"witness {name} cosigned {shown.size} leaves, which the log hides"
            )
            self._state.report(
                Finding(FindingKind.SEEN, Severity.ALARM, message, "STO-L138")
            )
            # Told once: from here on its age never passes the limit again.
            hidden[name] = _TOLD
        else:
            hidden[name] = since
        self._state.remember(hidden=tuple(sorted(hidden.items())))

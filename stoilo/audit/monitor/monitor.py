"""One monitor of one log: what is shown now must extend what was shown before."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stoilo.audit.format.merkle import Checkpoint, NodeReader
from stoilo.audit.format.misbehaviour import (
    Misbehaviour,
    check_misbehaviour,
    render_misbehaviour,
)
from stoilo.audit.format.policy import (
    LogPolicy,
    log_keys_of,
    open_checkpoint,
)
from stoilo.audit.format.proof import parse_leaf
from stoilo.audit.format.tiles import TileNodes
from stoilo.audit.monitor.cross_check import SeenCheck, check_witnesses
from stoilo.audit.monitor.finding import Finding, FindingKind, MonitorSettings, Severity
from stoilo.audit.monitor.inspection import Inspection, Look, read_leaves
from stoilo.audit.monitor.state import MonitorState
from stoilo.audit.read.source import LogSource, read_url
from stoilo.core.digests import content_digest
from stoilo.core.errors import StoiloError, TrustError, UnreachableError
from stoilo.core.files import write_durably

_RETRIED_RECORDS = 256


class Monitor:
    """Follows one log; not thread-safe.

    Raises:
        UsageError: ``STO-L048`` the state is another log's.
        TrustError: ``STO-L124`` the state is damaged.
    """

    def __init__(
        self,
        source: LogSource,  # the log, hostile in every byte
        # whose signatures count; from the owner's hand, never from the log
        policy: LogPolicy,
        state: MonitorState,  # the monitor's memory, open
        settings: MonitorSettings | None = None,  # what to look for
        *,
        clock: Callable[[], float],  # s since 1970, ours
        # how witnesses are asked: (URL, most bytes) → bytes, None for none
        fetch: Callable[[str, int], bytes | None] = read_url,
    ) -> None:
        self._fetch = fetch
        self._source = source
        self._policy = policy
        self._state = state
        self._settings = settings or MonitorSettings()
        self._clock = clock
        state.check(policy)

    def poll(self) -> None:
        """Look at the log once; findings are in the state, committed.

        A log that has misbehaved provably is not looked at again: the proof stays.

        Raises:
            TrustError: what does not verify and is not provable either: ``STO-L032``, a
                signature, a missing tile. Nothing of it was taken into the state.
            UnreachableError: ``STO-L002``.
        """
        if self._state.memory.condemned:
            return
        try:
            self._read()
        finally:
            self._tell_time()

    def _read(self) -> None:
        """Read the log and what others saw of it; witnesses are asked in any case.

        A log that answers nothing, or rubbish, must not keep us from those whom it
        may have shown something else.
        """
        try:
            if self._follow():
                self._retry_records()
        finally:
            memory = self._state.memory
            if memory.note and not memory.condemned:
                check_witnesses(self._look(), self._prove_ourselves, self._fetch)
        if not self._state.memory.condemned:
            SeenCheck(self._look(), self._prove_ourselves).run()

    # -- the checkpoint ---------------------------------------------------------------

    def _follow(self) -> bool:
        """Take what is new; False after misbehaviour, when nothing else counts."""
        note = self._source.checkpoint()
        memory = self._state.memory
        if note is None:
            if memory.note:
                raise TrustError("STO-L032", "the log shows no checkpoint any more")
            return True
        shown = open_checkpoint(note, log_keys_of(self._policy)).checkpoint
        if memory.note and shown.origin != self._look().origin:
            raise TrustError("STO-L011", f"the checkpoint is of {shown.origin!r}")
        if shown.size > memory.size or not memory.note:
            return self._advance(note, shown)
        if self._state.mirror.root_at(shown.size) != shown.root:
            with self._state.change():
                self._state.report(self._prove_ourselves(note))
            return False
        self._stand_still(note, shown)
        return True

    def _advance(self, note: bytes, shown: Checkpoint) -> bool:
        """Read up to a larger checkpoint, or prove that it does not extend ours."""
        try:
            signed = open_checkpoint(note, self._policy)
            self._take(note, signed.checkpoint, signed.time or 0)
        except (TrustError, UnreachableError) as error:
            if error.code == "STO-L124" or not self._state.memory.note:
                raise
            # A fork is proven out of its own tiles: they must lead to the root that it
            # signed.
            tiles = TileNodes(self._source.tile)
            found = self._prove(
                note, lambda level, index: tiles.node(level, index, shown.size)
            )
            if found is None:
                raise
            with self._state.change():
                self._state.report(found)
            return False
        return True

    def _take(self, note: bytes, target: Checkpoint, cosigned_at: int) -> None:
        """Match everything up to `target` and remember it, in one transaction."""
        state, now = self._state, self._now()
        # Signing a size costs the log nothing; reading up to it would keep us for ever.
        if target.size - state.memory.size > self._settings.most_new:
            raise TrustError(
                "STO-L032",
                f"the log claims {target.size} leaves, more than anybody reads",
            )
        with state.change():
            read_leaves(self._look(), target)
            state.settle("silent", "shorter")
            state.remember(
                note=note,
                size=target.size,
                changed_at=now,
                cosigned_at=max(cosigned_at, state.memory.cosigned_at),
            )

    def _stand_still(self, note: bytes, shown: Checkpoint) -> None:
        """Note a sign of life of an unchanged log, or that an older one is shown."""
        state, memory = self._state, self._state.memory
        signed = open_checkpoint(note, self._policy)
        alive = (signed.time or 0) > memory.cosigned_at
        with state.change():
            if shown.size < memory.size:
                name = f"shorter {shown.size} "
                if name not in memory.standing:  # one is remembered, the last
                    state.settle("shorter")
                if state.is_due(name, self._now()):
                    text = f"{shown.size} leaves are shown, {memory.size} were before"
                    state.alarm(FindingKind.WENT_BACK, "STO-L121", text)
                return
            state.settle("shorter")
            if alive:
                state.settle("silent")
                state.remember(
                    note=note, cosigned_at=signed.time, changed_at=self._now()
                )

    def _prove_ourselves(self, note: bytes) -> Finding:
        """Return the proof that a note contradicts our own hashes."""
        found = self._prove(note, self._state.mirror.node)
        if found is None:
            raise TrustError(
                "STO-L124",
                "the state's hashes contradict a checkpoint and prove nothing",
            )
        return found

    def _prove(self, note: bytes, node: NodeReader) -> Finding | None:
        """Return the proof that `note` contradicts what we saw, if one holds."""
        try:
            proof = render_misbehaviour(self._state.memory.note, note, node)
            shown = check_misbehaviour(proof, self._policy)
        except (TrustError, UnreachableError, IndexError):
            return None
        return Finding(
            FindingKind.FORK,
            Severity.PROOF,
            _describe(shown),
            "STO-L120",
            proof=proof.decode(),
        )

    # -- what is open ---------------------------------------------------------------

    def _retry_records(self) -> None:
        """Ask again for records that were not there when their leaves were read."""
        state = self._state
        # the newest first; of those that the alarm has named, some
        query = "SELECT place, leaf FROM missing ORDER BY since, random() LIMIT ?"
        rows = state.connection.execute(query, (_RETRIED_RECORDS,)).fetchall()
        found = [(place, entry, self._record(entry)) for place, entry in rows]
        with state.change():
            inspection = self._inspection()
            for place, entry, data in found:
                if data is not None:
                    query = "DELETE FROM missing WHERE place = ?"
                    state.connection.execute(query, (place,))
                    inspection.take_record(place, parse_leaf(entry), data)

    def _record(self, entry: bytes) -> bytes | None:
        try:
            return self._source.record(parse_leaf(entry).digest)
        except TrustError:
            return None

    def _tell_time(self) -> None:
        """Raise the alarms that time alone raises."""
        state, now = self._state, self._now()
        with state.change():
            self._inspection().tell_overdue()
            state.tell_omitted()
            quiet = now - state.memory.changed_at
            silent = state.memory.note and quiet > self._settings.silence_s
            if silent and state.is_due("silent", now):
                message = f"the log has shown no sign of life for {quiet} s"
                state.alarm(FindingKind.SILENCE, "STO-L135", message)

    def _inspection(self) -> Inspection:
        look = self._look()
        return Inspection(look, look.origin)

    def _look(self) -> Look:
        return Look(
            self._source, self._policy, self._state, self._settings, self._now()
        )

    def _now(self) -> int:
        return int(self._clock())


def _describe(shown: Misbehaviour) -> str:
    """Return misbehaviour in a sentence."""
    text = (
        f"the log {shown.first.origin} signed two histories: {shown.first.size} leaves "
        f"with root {shown.first.root.hex()}, and {shown.second.size} leaves, of which "
        f"the first {shown.first.size} have root {shown.root.hex()}"
    )
    if shown.witnesses:
        text += f"; cosigned both: {', '.join(sorted(shown.witnesses))}"
    return text


_OWN = frozenset({"STO-L048", "STO-L124"})
_VERIFICATION_FAILED = TrustError.exit_code


@dataclass(frozen=True, slots=True)
class MonitorReport:
    """How a run ended."""

    origin: str  # of the log; empty when nothing was seen of it yet
    size: int  # leaves that were matched
    root: str  # of them, hex
    findings: int  # how many were shown
    # 4 after misbehaviour or, of a single poll, any alarm; that of the error when the
    # only poll failed; else 0
    exit_code: int


def run_monitor(
    monitor: Monitor,  # of the log
    state: MonitorState,  # its memory
    # takes each finding and the file of its proof (empty for none); a finding is
    # forgotten when `show` has returned
    show: Callable[[Finding, str], None],
    *,
    once: bool = False,  # one poll only
    interval_s: float = 60.0,  # pause between polls, s
    # waits so long, s, or until the watch is to end; returns whether it is
    wait: Callable[[float], bool],
) -> MonitorReport:
    """Poll until `wait` says so or the log has misbehaved (or once).

    Raises:
        TrustError: ``STO-L124`` the state is damaged.
    """
    failure: StoiloError | None = None
    shown, worst = 0, 0
    while True:
        before, failure = failure, _poll(monitor)
        if failure is not None and (before is None or before.code != failure.code):
            kind = FindingKind.UNREADABLE
            show(Finding(kind, Severity.ALARM, failure.message, failure.code), "")
            shown += 1
        for finding in _show_all(state, show):
            shown += 1
            if finding.severity is not Severity.NOTICE:
                worst = _VERIFICATION_FAILED
        if once or state.memory.condemned or wait(interval_s):
            break
    if failure is not None:
        worst = worst or failure.exit_code
    code = worst if once or state.memory.condemned else 0
    origin = state.memory.note.partition(b"\n")[0].decode()
    root = state.mirror.root_at(state.memory.size).hex()
    return MonitorReport(origin, state.memory.size, root, shown, code)


def _poll(monitor: Monitor) -> StoiloError | None:
    """Poll once; return what kept the log from being followed."""
    try:
        monitor.poll()
    except (TrustError, UnreachableError) as error:
        if error.code in _OWN:
            raise
        return error
    return None


def _show_all(
    state: MonitorState, show: Callable[[Finding, str], None]
) -> list[Finding]:
    """Show every finding and forget it; a proof is written down first."""
    found = []
    for number, finding in state.findings():
        place = ""
        if finding.proof:
            with contextlib.suppress(OSError):  # it is shown anyway
                place = str(write_proof(state.path.parent, finding.proof.encode()))
        show(finding, place)
        state.forget_finding(number)
        found.append(finding)
    return found


def write_proof(directory: Path, proof: bytes) -> Path:
    """Write a proof durably under a name made of its digest; return its path."""
    path = directory / f"misbehaviour-{content_digest(proof)[:16]}.txt"
    write_durably(path, proof)
    return path

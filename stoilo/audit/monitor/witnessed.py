"""Compare what witnesses have cosigned with the monitor's own hashes.

A witness shows the newest checkpoint that it cosigned (C2SP tlog-witness, monitoring
interface). It was signed by the log; whether the witness is honest, up or down says
nothing about the log and is passed over here.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from stoilo.audit.monitor.finding import Finding, FindingKind, Severity
from stoilo.audit.note import MAX_NOTE_BYTES
from stoilo.audit.policy import log_keys_of, open_checkpoint
from stoilo.core.errors import TrustError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from stoilo.audit.monitor.settings import MonitorSettings
    from stoilo.audit.monitor.state import MonitorState
    from stoilo.audit.policy import LogPolicy, Witness

__all__ = ["WitnessCheck", "witness_url"]

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
            hidden[name] = _TOLD
        else:
            hidden[name] = since
        self._state.remember(hidden=tuple(sorted(hidden.items())))

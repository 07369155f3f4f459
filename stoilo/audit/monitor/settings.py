"""What a monitor is told by its owner."""

from __future__ import annotations

from dataclasses import dataclass, field

from stoilo.audit.monitor.watch import WatchList

__all__ = ["MonitorSettings"]


@dataclass(frozen=True, slots=True)
class MonitorSettings:
    """What to look for, and how long to wait before saying so.

    Attributes:
        watches: what to tell about.
        known: commitments of the submitters that are expected; None tells about each
            new one instead.
        explain_s: an admission must be explained, and a record shown, within so long, s.
        silence_s: a log without a sign of life for longer is silent, s. Ours issues a
            revocation statement at least every 12 h.
        most_new: leaves that one poll reads; a log that claims more is not believed.
    """

    watches: WatchList = field(default_factory=WatchList)
    known: frozenset[str] | None = None
    explain_s: int = 900
    silence_s: int = 86_400
    most_new: int = 1 << 27

"""What a workunit is marked with for a stock scheduler: reviewed, of public source; pure.

A volunteer may want reviewed tasks only, or tasks of public source only, and the verifier
on his computer refuses others. So that none is sent in vain, BOINC's batch number of a
workunit says which it is, and an app version's plan class takes a range of batches
(``min_batch``, ``max_batch``). The numbers are in an order in which each wish is one
range, and far from those that BOINC counts up by itself for batches of its own.
Source: BOINC sched/plan_class_spec.cpp, sched/sched_customize.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NO_BATCH: Final = 0
_REVIEWED: Final = 2_000_000_001
_BOTH: Final = 2_000_000_002
_PUBLIC: Final = 2_000_000_003


@dataclass(frozen=True, slots=True)
class HostFilter:
    """What a volunteer wants of every task that he gets."""

    reviewed: bool = False  # a reviewer has signed it
    public: bool = False  # its source may be published

    @property
    def words(self) -> tuple[str, ...]:
        """Return the words for it in preferences and names of plan classes."""
        return ("reviewed",) * self.reviewed + ("public",) * self.public

    @property
    def batches(self) -> tuple[int, int] | None:
        """Return the first and last batch that fulfil it, None for every one."""
        if not self.reviewed and not self.public:
            return None
        return (
            _BOTH if self.public else _REVIEWED,
            _BOTH if self.reviewed else _PUBLIC,
        )


HOST_FILTERS: Final = tuple(
    HostFilter(one, other) for one in (False, True) for other in (False, True)
)


def batch_of(*, reviewed: bool, public: bool) -> int:
    """Return the batch number of a workunit."""
    if reviewed:
        return _BOTH if public else _REVIEWED
    return _PUBLIC if public else NO_BATCH

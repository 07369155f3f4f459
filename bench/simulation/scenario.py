"""What is simulated: a population, the work, and how far its results are trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stoilo.core.types import Redundancy

__all__ = ["POLICIES", "Policy", "Scenario"]

FEWEST_HOSTS: Final = 10
MOST_HOSTS: Final = 1_000_000
MOST_TASKS: Final = 10_000_000
MOST_COPIES: Final = 16  # of one call
HOUR_S: Final = 3600
DAY_S: Final = 86_400
_PATIENT: Final = {"max_error": 12, "max_success": 12, "max_total": 12}
"""Limits that end no workunit before its quorum is found."""


@dataclass(frozen=True, slots=True)
class Policy:
    """One way to decide what is accepted.

    Attributes:
        name: as it stands in the table.
        redundancy: of every workunit.
        adaptive: a host with a record may work alone.
        spot_check_rate: share of canonical results that the project computes again.
        season: valid results in a row that every host begins with.
        patience: how many times as much work it is given, where cheats are found in time.
    """

    name: str
    redundancy: Redundancy
    adaptive: bool = False
    spot_check_rate: float = 0.0
    season: int = 0
    patience: int = 1


def _copies(quorum: int, target: int) -> Redundancy:
    """Return a redundancy that gives up late."""
    return Redundancy(
        min_quorum=quorum, target_results=target, delay_bound_s=DAY_S, **_PATIENT
    )


POLICIES: Final = (
    Policy("quorum 2", _copies(2, 2)),
    Policy("3 of 5", _copies(3, 5)),
    Policy("adaptive", _copies(2, 2), adaptive=True, season=10, patience=4),
    Policy("spot checks", _copies(1, 1), spot_check_rate=0.1, patience=4),
)
"""What `stoilo boinc simulate` compares; adaptive replication begins with seasoned hosts,
cheats among them: the worst moment for it."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A population and its work; times in s of the virtual clock.

    Attributes:
        hosts: how many there are at any time, each of its own user.
        cheats: share of them that cheat, 0..1.
        corrupt: share of workunits that cheats falsify, 0..1.
        collude: cheats falsify the same workunits in the same way; else each its own.
        in_step: each cheat has the next one call right after it.
        tasks: workunits.
        seed: of every random draw.
        batch: copies that a host asks for at a time.
        task_s: one copy's mean time on a mean host.
        stragglers: share of hosts that are `straggler_factor` times slower.
        straggler_factor: how much slower.
        fails: share of copies that end in an error on an honest host.
        session_s: mean time that a host is on.
        pause_s: mean time that it is off.
        life_s: mean time until a host leaves for good; another one, without a record,
            comes in its place.
        own: the project's own machines (for spot checks), beside `hosts`.
        poll_s: when a host that got nothing calls again.
        life_of_admission_s: time that a workunit has.
    """

    hosts: int = 10_000
    cheats: float = 0.1
    corrupt: float = 1.0
    collude: bool = True
    in_step: bool = False
    tasks: int = 30_000
    seed: int = 1
    batch: int = 2
    task_s: float = HOUR_S
    stragglers: float = 0.03
    straggler_factor: float = 20.0
    fails: float = 0.01
    session_s: float = 10 * HOUR_S
    pause_s: float = 6 * HOUR_S
    life_s: float = 20 * DAY_S
    own: int = 0
    poll_s: float = HOUR_S
    life_of_admission_s: int = 14 * DAY_S

    def check(self) -> None:
        """Raise ValueError for what cannot be simulated."""
        shares = (self.cheats, self.corrupt, self.stragglers, self.fails)
        relations = (
            (FEWEST_HOSTS <= self.hosts <= MOST_HOSTS, "10 <= hosts <= 1000000"),
            (1 <= self.tasks <= MOST_TASKS, "1 <= tasks <= 10000000"),
            (all(0 <= share <= 1 for share in shares), "shares lie between 0 and 1"),
            (1 <= self.batch <= MOST_COPIES, "1 <= batch <= 16"),
        )
        for holds, relation in relations:
            if not holds:
                raise ValueError(f"cannot be simulated: not {relation}")

"""How long a step of a training will take, before a volunteer is asked: arithmetic only.

    task ≈ poll + download + compute + upload + validation

A step waits for its slowest task; with more tasks than volunteers it takes several rounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stoilo.core.errors import UsageError


# A task should compute at least so many times as long as everything else takes.
LEAST_SHARE = 3.0
# A task should take at most this share of its deadline: hosts differ in speed.
MOST_OF_DEADLINE = 0.5


@dataclass(frozen=True, slots=True)
class Conditions:
    """What volunteers and the project are like; the defaults are a home connection.

    Attributes:
        volunteers: computers that work at once.
        poll_s: from asking for work to having it, on average, s.
        download: bytes/s.
        upload: bytes/s.
        validate_s: from the report to the answer's use, s.
        slowdown: of a volunteer's computer against this one.
        deadline_s: a task that takes longer is given to somebody else, s.
    """

    volunteers: int = 3
    poll_s: float = 15.0
    download: float = 5e6
    upload: float = 1e6
    validate_s: float = 1.0
    slowdown: float = 2.0
    deadline_s: float = 300.0

    def __post_init__(self) -> None:
        """Refuse conditions under which nothing would come back."""
        above = ("volunteers", "download", "upload", "slowdown", "deadline_s")
        wrong = [name for name in above if not getattr(self, name) > 0]
        least = ("poll_s", "validate_s")
        wrong += [name for name in least if not getattr(self, name) >= 0]
        if wrong:
            raise UsageError("STO-T084", f"{wrong[0]} is too small for an estimate")


@dataclass(frozen=True, slots=True)
class TaskSize:
    """What one task moves and computes.

    Attributes:
        download_bytes: model version and data part; a host that has one of them already
            loads less.
        upload_bytes: arrays of the answer.
        compute_s: on this computer, s.
    """

    download_bytes: int
    upload_bytes: int
    compute_s: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """One step's time, s, each part for one task.

    Attributes:
        poll_s: until a volunteer asks.
        download_s: of model version and data.
        compute_s: on a volunteer's computer.
        upload_s: of the answer.
        validate_s: until it counts.
        tasks: of a step.
        rounds: how often each volunteer has a turn in a step.
        deadline_s: of a task.
    """

    poll_s: float
    download_s: float
    compute_s: float
    upload_s: float
    validate_s: float
    tasks: int
    rounds: int
    deadline_s: float

    @property
    def rest_s(self) -> float:
        """All of a task's time that is not computing."""
        return self.poll_s + self.download_s + self.upload_s + self.validate_s

    @property
    def task_s(self) -> float:
        """One task, s."""
        return self.rest_s + self.compute_s

    @property
    def step_s(self) -> float:
        """One step, s: all its tasks."""
        return self.rounds * self.task_s

    def warnings(self) -> tuple[str, ...]:
        """Return what is unwise about these tasks."""
        found = []
        if self.compute_s < LEAST_SHARE * self.rest_s:
            found.append(
                f"tasks are too small: {self.compute_s:.1f} s of computing for"
                f" {self.rest_s:.1f} s of everything else; give each more samples or steps"
            )
        limit = MOST_OF_DEADLINE * self.deadline_s
        if self.task_s > limit:
            found.append(
                f"tasks are too large: {self.task_s:.0f} s is over half of the deadline of"
                f" {self.deadline_s:.0f} s; give each fewer samples, or a later deadline"
            )
        return tuple(found)

    def __str__(self) -> str:
        """Return it as lines for a person."""
        turns = "1 round" if self.rounds == 1 else f"{self.rounds} rounds"
        line = (
            f"step ≈ {self.step_s:.1f} s ({self.tasks} tasks, {turns}):"
            f" poll {self.poll_s:.1f} + download {self.download_s:.1f} + compute"
            f" {self.compute_s:.1f} + upload {self.upload_s:.1f} + validation"
            f" {self.validate_s:.1f} s a task"
        )
        return "\n".join([line, *(f"warning: {text}" for text in self.warnings())])


def estimate(size: TaskSize, tasks: int, conditions: Conditions) -> Estimate:
    """Return the time of a step of so many equal tasks."""
    return Estimate(
        conditions.poll_s,
        size.download_bytes / conditions.download,
        size.compute_s * conditions.slowdown,
        size.upload_bytes / conditions.upload,
        conditions.validate_s,
        tasks,
        max(1, math.ceil(tasks / conditions.volunteers)),
        conditions.deadline_s,
    )

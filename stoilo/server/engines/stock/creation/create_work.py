"""What `create_work` is told: command lines and stdin lines; pure.

Redundancy can only be said once a call, so workunits are sorted into classes and each
class gets calls of its own. Lines are bounded: the tool gives up at 4,095 bytes, and keeps
at most 100 words of a line without counting them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

from stoilo.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from stoilo.core.types import Redundancy


# Of a line with its newline; `create_work` refuses a buffer that is full (4,095).
LINE_BYTES: Final = 4094

LINE_WORDS: Final = 98
# Workunits in one call: BOINC sends a statement for each MB, a half-way failure for
# each.
BATCH: Final = 1000

_WORD: Final = re.compile(r"[A-Za-z0-9_./-]{1,200}")


@dataclass(frozen=True, slots=True, order=True)
class JobClass:
    """What one call can say for all of its workunits."""

    app: str  # BOINC's app
    # copies
    quorum: int
    target: int
    max_error: int
    max_total: int
    max_success: int
    delay_bound_s: int  # from sending a copy to its deadline

    @classmethod
    def of(cls, app: str, redundancy: Redundancy) -> JobClass:
        """Return the class of a workunit.

        BOINC refuses a target above `max_success`, so that is raised to it; results are
        judged by their own number, which the higher bound does not change.
        """
        return cls(
            app,
            redundancy.min_quorum,
            redundancy.target_results,
            redundancy.max_error,
            redundancy.max_total,
            max(redundancy.max_success, redundancy.target_results),
            redundancy.delay_bound_s,
        )


@dataclass(frozen=True, slots=True)
class Job:
    """One workunit to be made."""

    row: int  # ours
    name: str  # of the workunit
    group: JobClass  # what its call says
    priority: int  # larger goes first
    input_template: str  # below ``templates``
    result_template: str  # below ``templates``
    files: tuple[str, ...]  # names in the download folder, in the template's order


def class_arguments(group: JobClass) -> list[str]:
    """Return the arguments of a call; a line that cannot be made stops no other."""
    return [
        *("--appname", group.app, "--stdin", "--continue_on_error"),
        *("--min_quorum", str(group.quorum)),
        *("--target_nresults", str(group.target)),
        *("--max_error_results", str(group.max_error)),
        *("--max_total_results", str(group.max_total)),
        *("--max_success_results", str(group.max_success)),
        *("--delay_bound", str(group.delay_bound_s)),
    ]


def stdin_line(job: Job) -> str:
    """Return a workunit's line, without newline; raises ``STO-B004``, see `check_line`."""
    words = [
        *("--wu_name", job.name),
        *("--wu_template", f"templates/{job.input_template}"),
        *("--result_template", f"templates/{job.result_template}"),
        *("--priority", str(job.priority)),
        *job.files,
    ]
    check_line(words)
    return " ".join(words)


def check_line(words: Sequence[str]) -> None:
    """Raise ``STO-B004`` for words that `create_work` would not read as they are."""
    if len(words) > LINE_WORDS or sum(len(word) + 1 for word in words) > LINE_BYTES:
        raise UsageError(
            "STO-B004",
            "the workunit has more files than BOINC's create_work can be told of",
        )
    for word in words:
        if not _WORD.fullmatch(word):
            raise UsageError("STO-B004", "a name is not one that BOINC can be given")


def batches(jobs: Iterable[Job]) -> Iterator[tuple[JobClass, tuple[Job, ...]]]:
    """Yield what to call `create_work` with: one class and at most `BATCH` workunits."""
    ordered = sorted(jobs, key=lambda job: (job.group, job.row))
    for group, members in groupby(ordered, key=lambda job: job.group):
        every = tuple(members)
        for at in range(0, len(every), BATCH):
            yield group, every[at : at + BATCH]

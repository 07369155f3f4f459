"""Where tasks run: threads here, simulated volunteers, or a server with real ones.

What a run asks of such a place is the same for all three: `Backend`.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self, TypeVar

from stoilo.client.capture.arguments import StoredValue
from stoilo.core.errors import StoiloError, UnreachableError, UsageError
from stoilo.core.rate_limit import RECONNECTING
from stoilo.core.rpc.progress_pb2 import ReportProgressRequest
from stoilo.learn.core.models import Kernel

Reached = TypeVar("Reached")


@dataclass(frozen=True, slots=True)
class Handle:
    """A value stored once; in a job's arguments it stands for the value."""

    digest: str  # its name
    size: int  # encoded, bytes; 0 where nobody has said it
    stored: object  # what the backend puts into a task in its place


@dataclass(frozen=True, slots=True)
class Job:
    """One task."""

    key: str  # unique for what is computed: the same key twice is the same task
    function: Kernel  # the kernel
    arguments: Mapping[str, object]  # its dict; top-level values may be handles
    samples: int  # how many samples it uses, for time estimates
    level: str  # policy level
    # After so many s with a volunteer another one gets it too; None: as the place has it
    deadline_s: float | None = field(default=None, kw_only=True)
    label: str = ""  # shown in lists
    # Whether a value has the form of an answer, for the place to ask: a host whose
    # value has not is at fault, and the job goes to another
    check: Callable[[object], bool] | None = None
    # Whether two values are the same answer, where copies are compared; equality when
    # None
    alike: Callable[[object, object], bool] | None = None
    # Whether the value stays at the place: its ending then has a `Handle` of it
    stays: bool = False


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a job ended: with a value (hostile, unchecked) or an error."""

    job_id: str  # as `Backend.submit` returned it
    # What the kernel returned, or a handle of it where it stays; None with an error
    value: object
    # A `stoilo.UserError` of the kernel or a `StoiloError`; None with a value
    error: Exception | None
    finished_at: float  # by the backend's clock, s
    # How long it computed, as its volunteer says (unchecked), s; 0: unsaid
    computed_s: float = 0.0


class Backend(ABC):
    """Runs jobs; used by one asynchronous task at a time."""

    @abstractmethod
    async def put(self, value: object) -> Handle:
        """Store a value once and return its handle."""

    @abstractmethod
    async def submit(self, job: Job) -> str:
        """Start a job and return its id; the same key gives the same job."""

    async def submit_many(self, jobs: Sequence[Job]) -> list[str | StoiloError]:
        """Start jobs together; each one's id, or why it could not be started.

        Raises:
            UnreachableError: none or some were started; the same call again is safe.
        """
        found: list[str | StoiloError] = []
        for job in jobs:
            try:
                found.append(await self.submit(job))
            except UnreachableError:
                raise
            except StoiloError as error:
                found.append(error)
        return found

    @abstractmethod
    async def next(self, wait_s: float | None = None) -> JobEnd | None:
        """Return the next ending; None when `wait_s` s passed or nothing is under way."""

    @abstractmethod
    async def cancel(self, job_id: str) -> None:
        """Stop a job; it gives no ending."""

    def leave_values(self) -> None:
        """Give no values with endings: somebody else takes them from the project.

        Raises:
            UsageError: ``STO-T040``, the values arise in this process.
        """
        raise UsageError(
            "STO-T040", "answers pass this process, unless a server has them"
        )

    async def refuse(self, job_id: str, reason: str) -> None:  # noqa: B027 - no hosts: nothing to do
        """Say that the answer of a job that ended cannot be used: its host is at fault."""

    async def report(self, request: ReportProgressRequest) -> None:  # noqa: B027 - nobody to be told
        """Tell whoever shows trainings how one goes; may raise a `StoiloError`."""

    def now(self) -> float:
        """Return the time that `JobEnd.finished_at` is counted in, s: it never goes back."""
        return time.monotonic()

    @abstractmethod
    async def close(self) -> None:
        """Let everything go; jobs at a server go on."""

    async def __aenter__(self) -> Self:
        """Return the backend."""
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Close it; what it was given stays open."""
        await self.close()


class OwnBackend(Backend):
    """A backend that runs jobs in this process: a handle holds the value itself."""

    async def put(self, value: object) -> Handle:
        """Return the value's handle."""
        stored, _ = StoredValue.of(value)
        return Handle(stored.digest, stored.size, value)


def leave(job: Job, ending: JobEnd) -> JobEnd:
    """Return the ending with a handle in the value's place, where the job's value stays."""
    if not job.stays or ending.error is not None:
        return ending
    try:
        stored, _ = StoredValue.of(ending.value)
    except StoiloError as error:
        return replace(ending, value=None, error=error)
    return replace(ending, value=Handle(stored.digest, stored.size, ending.value))


async def reach(
    call: Callable[[], Awaitable[Reached]], backend: Backend, outage_s: float
) -> Reached:
    """Await `call()` again and again while the backend cannot be reached.

    Raises:
        UnreachableError: as the backend's, when `outage_s` have passed.
    """
    pauses = RECONNECTING()
    end = backend.now() + outage_s
    while True:
        try:
            return await call()
        except UnreachableError:
            if backend.now() >= end:
                raise
        await asyncio.sleep(pauses.next_pause())


def resolve(arguments: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments with values where handles stood, for backends without tasks."""
    return {
        name: value.stored if isinstance(value, Handle) else value
        for name, value in arguments.items()
    }

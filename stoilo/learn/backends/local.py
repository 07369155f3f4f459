"""Threads of this process: no server, no jail; to try a training out."""

from __future__ import annotations

import asyncio
import copy
import time
from concurrent.futures import ThreadPoolExecutor

from stoilo.client.results import user_error
from stoilo.learn.backends import Job, JobEnd, OwnBackend, leave, resolve
from stoilo.learn.core.models import torch_lock


class LocalBackend(OwnBackend):
    """Runs jobs in `workers` threads; each gets copies of what it could change."""

    def __init__(self, workers: int = 2) -> None:
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="learn")
        self._running: dict[str, asyncio.Future[JobEnd]] = {}
        self._ended: asyncio.Queue[str] = asyncio.Queue()

    async def submit(self, job: Job) -> str:
        """Start the job in a thread; its key is its id."""
        if job.key not in self._running:
            loop = asyncio.get_running_loop()
            work = loop.run_in_executor(self._pool, self._run, job)
            self._running[job.key] = work
            work.add_done_callback(lambda _: self._ended.put_nowait(job.key))
        return job.key

    def _run(self, job: Job) -> JobEnd:
        return leave(job, run_job(job))

    async def next(self, wait_s: float | None = None) -> JobEnd | None:
        """Return the next ending, in the order in which jobs end."""
        while self._running:
            try:
                async with asyncio.timeout(wait_s):
                    key = await self._ended.get()
            except TimeoutError:
                return None
            work = self._running.get(key)
            if work is not None and work.done():  # else forgotten, perhaps begun again
                return self._running.pop(key).result()
        return None

    async def cancel(self, job_id: str) -> None:
        """Forget the job; one that has begun runs to its end, unheard."""
        work = self._running.pop(job_id, None)
        if work is not None:
            work.cancel()

    async def close(self) -> None:
        """Wait for what has begun and end the threads."""
        for key in list(self._running):
            await self.cancel(key)
        await asyncio.to_thread(self._pool.shutdown)


def run_job(job: Job) -> JobEnd:
    """Run a job as a volunteer would, on copies of its arguments."""
    try:
        with torch_lock(job.level):
            began = time.monotonic()
            # A volunteer gets bytes: what it changes must not be ours.
            value = job.function(copy.deepcopy(resolve(job.arguments)))
    except Exception as error:  # noqa: BLE001 - a process edge: the task's own error
        return JobEnd(job.key, None, as_user_error(error), time.monotonic())
    now = time.monotonic()
    return JobEnd(job.key, value, None, now, now - began)


def as_user_error(error: Exception) -> Exception:
    """Return what a server would say of an exception of the task's own."""
    return user_error(type(error).__name__, str(error)[:2000], "STO-G200")

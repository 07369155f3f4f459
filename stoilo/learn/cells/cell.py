"""A cell as a place where orders are executed: all members together, one answer.

    cell = stoilo.learn.cell(4)                                  # processes here
    cell = stoilo.learn.cell([Path("a.json"), Path("b.json")])   # `stoilo learn cell` there
    trained = await stoilo.learn.fit("dpbgd", model, data, cell, loss=loss)

To a training it is a backend. An answer is as hostile as a volunteer's and passes the same
checks. When a member dies, hangs or is cut off, the group is formed anew, of the same size,
and the order that it was at is executed again: the same arguments, the same seeds.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from stoilo.client.capture.arguments import StoredValue
from stoilo.client.capture.known import Captures
from stoilo.client.results import read_value, user_error
from stoilo.core.digests import content_digest
from stoilo.core.errors import StoiloError, UnreachableError, UsageError
from stoilo.learn.backends import Handle, Job, JobEnd, resolve
from stoilo.learn.backends.local import LocalBackend
from stoilo.learn.cells import protocol as c
from stoilo.learn.cells.group import BrokenError, CellLimits, Group
from stoilo.learn.cells.member import PROGRAM, CellMember
from stoilo.learn.cells.timeline import Span
from stoilo.learn.kernels.array_models import give
from stoilo.learn.store.place import ShardPlace, read_place

LIVES: Final = 3  # groups that one order may use up
_PAUSE_S = 0.3
_KERNELS = "stoilo.learn.kernels.torch_models"


@dataclass(frozen=True, slots=True)
class _Held(StoredValue):
    """A stored value with its bytes, for members that have it not."""

    data: bytes


_USUAL = CellLimits()


class Cell(LocalBackend):
    """A backend whose orders are executed by a group; see `cell`.

    Attributes:
        generation: how often the group was formed.
        members: those that were started here, by rank.
        spans: who did what when during the last order, where the layout notes it: for
            `stoilo.learn.render_trace` and `draw_timeline`.
    """

    def __init__(
        self,
        places: Sequence[ShardPlace],
        layout: c.Layout | None,
        limits: CellLimits,
        members: Sequence[CellMember] = (),
        owned: ExitStack | None = None,  # closed with it
    ) -> None:
        super().__init__(workers=1)  # one order at a time
        self.generation, self.members = 0, tuple(members)
        self.spans: list[Span] = []
        self._places, self._layout = list(places), c.write_layout(layout)
        self._limits, self._captures = limits, Captures()
        self._group: Group | None = None
        self._owned = owned or ExitStack()
        self._is_closing = threading.Event()

    async def put(self, value: object) -> Handle:
        """Keep a value's bytes: each member gets them once, with the first order."""
        stored, data = StoredValue.of(value)
        held = _Held(stored.digest, stored.size, data)
        return Handle(stored.digest, stored.size, held)

    async def submit(self, job: Job) -> str:
        """Queue the job; its key is its id.

        Raises:
            UsageError: ``STO-T040``, it is no kernel of a torch model.
        """
        if job.function.__module__ != _KERNELS:
            raise UsageError(
                "STO-T040",
                f"a cell executes torch models, not {job.function.__name__!r}",
                hint="LocalBackend, or volunteers, run models of arrays and programs",
            )
        return await super().submit(job)

    def _run(self, job: Job) -> JobEnd:
        order, inputs = self._write(job)
        why = ""
        for _ in range(LIVES):
            try:
                done = self._formed().execute(order, inputs)
            except BrokenError as broken:
                self._part()
                if (failed := broken.failed) is not None and not failed.is_link:
                    words = failed.error_type, failed.error_text, failed.code
                    return JobEnd(job.key, None, user_error(*words), time.monotonic())
                why = str(broken)
            except StoiloError:
                self._part()
                raise
            else:
                self.spans = done.spans
                return _read_end(job, done)
            if self._is_closing.is_set():
                break
        raise UnreachableError(
            "STO-T037",
            f"the cell was lost {LIVES} times over one order: {why[:300]}",
            hint="start the training again: it goes on from its checkpoint",
        )

    def _write(self, job: Job) -> tuple[c.Execute, dict[str, bytes]]:
        """Return a job as an order, and what it needs by digest."""
        found = self._captures.task(give, resolve(job.arguments))
        handles = [one for one in job.arguments.values() if isinstance(one, Handle)]
        held = {one.digest: cast("_Held", one.stored).data for one in handles}
        parts = {b if isinstance(b, str) else content_digest(b): b for b in found.blobs}
        inputs = {d: held[d] if isinstance(b, str) else b for d, b in parts.items()}
        text, name = found.task_module.encode(), job.function.__name__
        source, seed = content_digest(text), content_digest(job.key.encode())
        call = found.entry, found.arguments, [*parts], seed, int(time.time())
        return c.Execute("", name, source, *call), {**inputs, source: text}

    def _formed(self) -> Group:
        """Return the group, formed anew if need be: members may be on their way back."""
        until = time.monotonic() + self._limits.form_s
        while self._group is None:
            try:
                self._group = Group(self._places, self._layout, self._limits)
                self.generation += 1
            except UnreachableError:
                if self._is_closing.wait(_PAUSE_S) or time.monotonic() >= until:
                    raise
        return self._group

    def _part(self) -> None:
        if self._group is not None:
            self._group.close()
        self._group = None

    async def close(self) -> None:
        """Let the members go; those that were started here end."""
        self._is_closing.set()
        for key in list(self._running):
            await self.cancel(key)
        if (group := self._group) is not None:
            await asyncio.to_thread(group.close)
        await super().close()
        self._part()
        await asyncio.to_thread(self._owned.close)


def _read_end(job: Job, done: c.Done) -> JobEnd:
    now = time.monotonic()
    try:
        return JobEnd(job.key, read_value(done.value), None, now, done.computed_s)
    except StoiloError as error:  # bytes that are no answer
        return JobEnd(job.key, None, error, now, done.computed_s)


def cell(
    members: int | Sequence[Path | ShardPlace],
    layout: c.Layout | None = None,
    *,
    limits: CellLimits = _USUAL,
    program: Sequence[str] = PROGRAM,
) -> Cell:
    """Return a cell: a backend for trainings; use it in ``async with``.

    Args:
        members: how many processes to start here; or the connection files of members that
            `stoilo learn cell` started elsewhere, by rank. Those files are secrets.
        layout: how members share an order; each computes a part of the data when missing.
        limits: how long may be waited.
        program: of workers that are started here.

    Raises:
        UsageError: ``STO-T040``, there is nobody; ``STO-C045``, no connection file.
    """
    given = [] if isinstance(members, int) else list(members)
    places = [one if isinstance(one, ShardPlace) else read_place(one) for one in given]
    count = members if isinstance(members, int) else len({one.shard for one in places})
    if count < max(1, len(places)):
        raise UsageError("STO-T040", "a cell needs members, each of them once")
    if places:
        return Cell(places, layout, limits)
    owned = ExitStack()
    started = _start_members(count, program, owned)
    return Cell([one.place for one in started], layout, limits, started, owned)


def _start_members(
    count: int, program: Sequence[str], owned: ExitStack
) -> list[CellMember]:
    """Start members in this process: their workers are processes, and end with it."""
    folder = owned.enter_context(tempfile.TemporaryDirectory(prefix="stoilo-cell-"))
    threads = max(1, (os.cpu_count() or 1) // count)
    started = []
    for rank in range(count):
        data, here = Path(folder, str(rank)), "127.0.0.1:0"
        one = CellMember(data, here, threads=threads, program=program)
        owned.callback(one.close)
        threading.Thread(target=one.run, daemon=True).start()
        started.append(one)
    return started

"""Trainings that were handed over: kept on disk, driven, taken up again after a kill.

A kill at any moment loses nothing that was acknowledged: what runs is a driver with a
folder, and a run whose state says "running" is begun again with the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stoilo.client.connection import Connection
from stoilo.client.options import make_options
from stoilo.client.task import submit
from stoilo.core.digests import content_digest
from stoilo.core.errors import DeniedError, StoiloError, UnreachableError, UsageError
from stoilo.core.files import write_durably
from stoilo.core.rate_limit import RECONNECTING
from stoilo.learn.backends import Job
from stoilo.learn.backends.server import ServerBackend
from stoilo.learn.coordinator.kept import KeptRun, Progress
from stoilo.learn.coordinator.sheet import (
    KernelText,
    parse_sheet,
    save_snapshot,
    unpack_settings,
)
from stoilo.learn.trainers.fitting import evaluate_on
from stoilo.learn.trainers.options import TrainerOptions
from stoilo.learn.trainers.reclaiming import render_table
from stoilo.learn.trainers.trainer import Trainer

LOGGER = logging.getLogger(__name__)
_CHECKED = 100  # after so many updates the disk is looked at again
MakeConnection = Callable[[str], AbstractAsyncContextManager[Connection]]  # by token


@dataclass(frozen=True, slots=True)
class Limits:
    """What the trainings of one token may use.

    Attributes:
        runs: kept at a time, those that have ended too, until they are forgotten.
        disk_bytes: of all of them.
        updates: of each; then it ends as failed.
    """

    runs: int = 16
    disk_bytes: int = 16 << 30
    updates: int = 1_000_000


class TextBackend(ServerBackend):
    """Submits kernels that are text, for whom the connection's token names."""

    async def submit(self, job: Job) -> str:
        """Create the task; see `ServerBackend.submit`."""
        text = job.function
        if not isinstance(text, KernelText):
            raise UsageError("STO-T040", "a coordinator has texts alone")
        if self._redundancy.min_quorum == 1:
            job = replace(job, alike=None)
        options = make_options(
            self._hurry(job),
            self._flavor,
            job.level,
            self._limits,
            job.label,
            publish_source=False,
        )
        session = self._connection.session
        captured = text.capture(job, session.captures)
        submitted = await submit(session, captured, options, job.key)
        self._watch(submitted, stays=job.stays)
        return submitted.task_id


class Coordinator:
    """All trainings of a folder; its methods are called in one event loop."""

    def __init__(self, folder: Path, connect: MakeConnection, limits: Limits) -> None:
        """Read what is there; `connect` opens the server with a researcher's token."""
        self._folder, self._connect, self._limits = folder / "runs", connect, limits
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for unfinished in self._folder.glob(".*"):
            shutil.rmtree(unfinished)
        runs = [KeptRun(one) for one in self._folder.iterdir()]
        self._runs = {run.id: run for run in runs}

    def go_on(self) -> None:
        """Begin again what was running when an earlier process ended."""
        for run in self._runs.values():
            if run.progress.phase in {"running", "stopping"}:
                run.work = asyncio.ensure_future(self._drive(run))

    async def close(self) -> None:
        """Stop driving; the trainings go on with the next process."""
        works = [run.work for run in self._runs.values() if run.work is not None]
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)

    def find(self, owner: str, ident: str) -> KeptRun:
        """Return a training of `owner`'s, or raise ``STO-R003``: others have none here."""
        run = self._runs.get(ident)
        if run is None or run.owner != owner:
            raise DeniedError("STO-R003", f"you have no training {ident[:40]!r} here")
        return run

    def list(self, owner: str) -> dict[str, Progress]:
        """Return the trainings of `owner`."""
        runs = self._runs.values()
        return {run.id: run.progress for run in runs if run.owner == owner}

    def offer(self, owner: str, data: bytes) -> KeptRun:
        """Return the training of a sheet; the same sheet twice is the same training.

        Raises:
            UsageError: ``STO-T040``, the sheet is none.
            DeniedError: ``STO-R004``, ``STO-R006``: the owner has too much here.
        """
        ident = content_digest(owner.encode() + b"\0" + data)[:32]
        if ident in self._runs:
            return self.find(owner, ident)
        parse_sheet(data)
        if len(self.list(owner)) >= self._limits.runs:
            raise DeniedError(
                "STO-R004", f"you have {self._limits.runs} trainings here"
            )
        self.check_disk(owner, len(data))
        draft = self._folder / f".{ident}"
        (draft / "blobs").mkdir(parents=True, mode=0o700)
        record = {"owner": owner, "sheet": data.decode()}
        text = json.dumps(record).encode()
        write_durably(draft / "sheet.json", text, mode=0o600)
        draft.replace(self._folder / ident)
        self._runs[ident] = KeptRun(self._folder / ident)
        return self._runs[ident]

    def check_disk(self, owner: str, more: int) -> None:
        """Raise ``STO-R006`` where `more` bytes are too many for the owner."""
        runs = [run for run in self._runs.values() if run.owner == owner]
        files = [path for run in runs for path in run.folder.rglob("*")]
        if sum(map(_size, files)) + more > self._limits.disk_bytes:
            raise DeniedError(
                "STO-R006",
                f"your trainings would take over {self._limits.disk_bytes} bytes here",
                hint="bring home what has ended, and forget it",
            )

    def start(self, run: KeptRun, token: str) -> None:
        """Begin a training all of whose blobs are here; once is enough.

        Raises:
            UsageError: ``STO-R010``.
        """
        if run.progress.phase != "filling":
            return
        if missing := run.missing():
            raise UsageError("STO-R010", f"{len(missing)} blobs are missing")
        write_durably(run.folder / "token", token.encode(), mode=0o600)
        run.note(phase="running")
        run.work = asyncio.ensure_future(self._drive(run))

    def stop(self, run: KeptRun) -> None:
        """End a training where it is; its newest version stays."""
        if run.progress.phase == "filling":
            run.note(phase="stopped")
        elif run.progress.phase == "running":
            run.note(phase="stopping")
            if run.work is not None:
                run.work.cancel()

    def forget(self, run: KeptRun) -> None:
        """Remove a training that is over; raises ``STO-R010`` for another one."""
        if not run.progress.is_over:
            raise UsageError("STO-R010", "it is not over", hint="stop it first")
        gone = self._folder / f".{run.id}"
        run.folder.replace(gone)
        del self._runs[run.id]
        shutil.rmtree(gone)

    async def _drive(self, run: KeptRun) -> None:
        """Train to the end, whatever happens; a server that is away is waited for."""
        pauses, pause_s = RECONNECTING(), 0.0
        while not run.progress.is_over:
            try:
                await asyncio.sleep(pause_s)
                await self._train(run)
            except UnreachableError:
                pause_s = pauses.next_pause()
            except asyncio.CancelledError:
                if run.progress.phase != "stopping":
                    raise
            except StoiloError as error:
                run.note(phase="failed", error=f"{error.code}: {error.message[:500]}")
            except Exception as error:  # a process edge: one training ends, not all
                LOGGER.exception("training %s", run.id)
                run.note(phase="failed", error=type(error).__name__)

    async def _train(self, run: KeptRun) -> None:
        token = (run.folder / "token").read_text()
        model = run.model()
        async with self._connect(token) as connection:
            _, options = unpack_settings(run.sheet)
            given = options.redundancy, options.limits
            backend = TextBackend(connection, *given, flavor=options.flavor)
            try:
                trainer = run.trainer(backend, model)
                async with trainer:
                    try:
                        await self._go_through(run, trainer, connection)
                    except StoiloError:
                        _finish(run, trainer)
                        raise
                    run.note(**_finish(run, trainer))
            finally:
                await backend.close()

    async def _go_through(
        self, run: KeptRun, trainer: Trainer, connection: Connection
    ) -> None:
        """Step until the end, or until it is told to stop."""
        if run.progress.phase == "stopping":  # before an earlier process was killed
            await trainer.run.end()
            return
        try:
            await _evaluate(run, trainer, connection)
            async for _ in trainer:
                self._note(run, trainer)
                await _evaluate(run, trainer, connection)
        except asyncio.CancelledError:
            if run.progress.phase != "stopping":
                raise
            await trainer.run.end()

    def _note(self, run: KeptRun, trainer: Trainer) -> None:
        run.note(**_describe(trainer))
        if run.progress.updates >= self._limits.updates:
            most = self._limits.updates
            raise DeniedError("STO-R004", f"a training has at most {most} updates here")
        if run.progress.updates % _CHECKED == 0:
            self.check_disk(run.owner, 0)


def _describe(trainer: Trainer) -> dict[str, Any]:
    history, tally = trainer.run.history, trainer.run.tally
    last = history.updates[-1].loss if len(history) else None
    return {
        "updates": len(history),
        "epochs": trainer.epoch_number,
        "version": trainer.snapshot.version,
        "loss": last if last is not None and abs(last) < float("inf") else None,
        "refused": tally.refused,
        "failed": tally.failed,
    }


def _finish(run: KeptRun, trainer: Trainer) -> dict[str, Any]:
    """Write what is to be brought home; return what changes of the progress."""
    write_durably(run.folder / "model.safetensors", save_snapshot(trainer.snapshot))
    path = run.folder / "run" / "history.jsonl"
    rows = path.read_text().splitlines() if path.exists() else []
    found = [json.loads(row) for row in rows[: len(trainer.run.history)]]
    head = [*found[0]] if found else []
    table = render_table(head, [[row.get(n, "") for n in head] for row in found])
    write_durably(run.folder / "training.csv", table)
    phase = "stopped" if run.progress.phase == "stopping" else "ended"
    return {**_describe(trainer), "phase": phase}


async def _evaluate(run: KeptRun, trainer: Trainer, connection: Connection) -> None:
    """Have the newest version evaluated by volunteers, once for each epoch that ended."""
    path = run.folder / "evaluation.csv"
    text = path.read_text() if path.exists() else "epoch,version,loss,accuracy\n"
    epochs = trainer.epoch_number
    if run.sheet.held_out is None or epochs < text.count("\n"):
        return
    chosen, version = trainer.options, trainer.run.method.snapshot
    async with TextBackend(
        connection, chosen.redundancy, chosen.limits, flavor=chosen.flavor
    ) as backend:
        found = await evaluate_on(
            backend,
            trainer.form,
            [run.part(run.sheet.held_out)],
            snapshot=version,
            options=TrainerOptions(least_loss=chosen.least_loss, home_checks=0.0),
        )
    accuracy = "" if found.accuracy is None else found.accuracy
    text += f"{epochs - 1},{version.version},{found.loss},{accuracy}\n"
    write_durably(path, text.encode())


def _size(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
        return path.lstat().st_size
    return 0

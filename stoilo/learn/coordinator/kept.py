"""One handed-over training on disk: its folder, and how far it is.

DIR/runs/ID/sheet.json        what it is (see `sheet`), and whose
DIR/runs/ID/token             0600: his token at the server, until the run has ended
DIR/runs/ID/blobs/DIGEST      first version, calls, data parts
DIR/runs/ID/state.json        phase and newest progress
DIR/runs/ID/run/              the driver's own folder
DIR/runs/ID/*.csv, model.safetensors
"""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from stoilo.core.codec.nodes import from_node
from stoilo.core.codec.skeleton import decode
from stoilo.core.digests import content_digest
from stoilo.core.errors import UsageError
from stoilo.core.files import write_durably
from stoilo.core.types import BOUNDS
from stoilo.learn.backends import Backend
from stoilo.learn.coordinator.sheet import (
    HandedModel,
    PartRow,
    Sheet,
    parse_sheet,
    read_model,
    unpack_settings,
)
from stoilo.learn.core.data import Part
from stoilo.learn.core.lazy import LazyPart
from stoilo.learn.trainers.fitting import make_trainer
from stoilo.learn.trainers.trainer import Trainer

FILES = ("history.jsonl", "training.csv", "evaluation.csv", "model.safetensors")


class Progress(msgspec.Struct, frozen=True):
    """How far a training is."""

    phase: str  # filling, running, stopping; ended, stopped, failed
    updates: int = 0
    epochs: int = 0  # that have ended
    version: int = 0  # of the newest parameters
    loss: float | None = None  # of the newest update; None before, or not finite
    refused: int = 0  # answers that acceptance refused
    failed: int = 0  # tasks without an answer
    error: str = ""  # code and message of what ended it

    @property
    def is_over(self) -> bool:
        """Whether nothing is done any more."""
        return self.phase in {"ended", "stopped", "failed"}


class KeptRun:
    """One training in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.id = folder, folder.name
        record = json.loads((folder / "sheet.json").read_bytes())
        self.owner = str(record["owner"])
        self.sheet: Sheet = parse_sheet(record["sheet"].encode())
        state = folder / "state.json"
        self.progress = (
            msgspec.json.decode(state.read_bytes(), type=Progress)
            if state.exists()
            else Progress("filling")
        )
        self.work: asyncio.Task[None] | None = None

    def missing(self) -> list[str]:
        """Return the digests of blobs that are not here yet."""
        return [d for d in self.sheet.blobs() if not self.blob(d).exists()]

    def blob(self, digest: str) -> Path:
        """Return where a blob lies."""
        return self.folder / "blobs" / digest

    def note(self, **changes: Any) -> None:  # noqa: ANN401 - fields of `Progress`
        """Change the progress, durably where the phase changes."""
        before = self.progress.phase
        self.progress = msgspec.structs.replace(self.progress, **changes)
        if self.progress.phase != before:
            data = msgspec.json.encode(self.progress)
            write_durably(self.folder / "state.json", data, mode=0o600)
        if self.progress.is_over:
            (self.folder / "token").unlink(missing_ok=True)

    def put(self, digest: str, offset: int, data: bytes, *, is_last: bool) -> None:
        """Take a piece of a blob; the last one is checked against the name.

        Raises:
            UsageError: ``STO-R010``.
        """
        path, draft = self.blob(digest), self.folder / "blobs" / f"{digest[:64]}.part"
        most = BOUNDS.blob_bytes if digest in self.sheet.blobs() else -1
        if self.progress.phase != "filling" or not 0 <= offset <= most - len(data):
            raise UsageError("STO-R010", f"no such piece of {digest[:16]} is awaited")
        with draft.open("r+b" if offset else "wb") as file:
            if file.seek(0, os.SEEK_END) != offset:
                raise UsageError("STO-R010", f"a piece of {digest[:16]} is missing")
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if not is_last:
            return
        if content_digest(draft.read_bytes()) != digest:
            draft.unlink()
            raise UsageError("STO-R010", f"{digest[:16]} holds something else")
        draft.replace(path)

    def part(self, row: PartRow) -> LazyPart:
        """Return a data part, which is read when it is needed."""

        def load() -> Part:
            found: Any = from_node(decode(self.blob(row.digest).read_bytes()))
            return Part(found["x"], found["y"])

        return LazyPart(load, row.samples, row.nbytes, row.digest)

    def model(self) -> HandedModel:
        """Return its model; see `read_model`."""
        names = [self.sheet.first, *(k.call for k in self.sheet.kernels.values())]
        return read_model(self.sheet, {n: self.blob(n).read_bytes() for n in names})

    def trainer(self, backend: Backend, model: HandedModel) -> Trainer:
        """Return its trainer over the driver's folder; raises what settings do."""
        settings, options = unpack_settings(self.sheet)
        options = replace(options, folder=self.folder / "run")
        parts = [self.part(row) for row in self.sheet.parts]
        method = self.sheet.method
        return make_trainer(method, model, parts, backend, options=options, **settings)

    def file(self, name: str) -> Path:
        """Return where a file of the result lies.

        Raises:
            UsageError: ``STO-T040``: no such file, or one that comes after the end.
        """
        if name == "history.jsonl":
            return self.folder / "run" / name
        if name not in FILES or not self.progress.is_over:
            raise UsageError(
                "STO-T040",
                f"{name[:40]!r} is no file of a training that is {self.progress.phase}",
                hint="history.jsonl at any time; csv and model after the end",
            )
        return self.folder / name

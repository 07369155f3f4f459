"""What of a run is on disk, and when: the shell between `Run` and its checkpoint.

Everything is written in another thread, so that a notebook goes on, and in the order in which
it was asked for. A save that is cancelled is waited for all the same.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.core.checkpoint import Checkpoint, Lines, damaged, digest_of
from stoilo.learn.core.data import Part
from stoilo.learn.core.lazy import name_part
from stoilo.learn.core.orders import Method, Snapshot, Update
from stoilo.learn.core.states import (
    Plain,
    State,
    join_states,
    parse,
    render,
    select,
)
from stoilo.learn.core.tensors import Tensors
from stoilo.learn.methods.robust import Memory

KEPT_UPDATES = 100_000


@dataclass(slots=True)
class Tally:
    """What happened besides updates, since the run began (in all its processes)."""

    sent_bytes: int = 0  # values stored for volunteers, each counted once
    received_bytes: int = 0  # arrays in accepted answers
    refused: int = 0  # answers that acceptance refused
    failed: int = 0  # tasks that ended without an answer
    shortened: int = 0  # answers whose influence was cut
    # Orders that were out much longer than usual at the last answer
    stragglers: int = 0
    out_s: float = 0.0  # from order to answer, summed over the answers, s
    # Of that, what volunteers say they computed, s; 0 where none says it
    computed_s: float = 0.0

    def take_up(self, earlier: Tally) -> None:
        """Go on from what an earlier process counted."""
        for name in asdict(earlier):
            setattr(self, name, getattr(earlier, name))


class History:
    """The updates of a run, in memory and, where a file is given, as JSON lines."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._updates: deque[Update] = deque(maxlen=KEPT_UPDATES)
        self._times: deque[float] = deque(maxlen=KEPT_UPDATES)
        self._count = 0
        self._written, self._unwritten = 0, b""

    @property
    def updates(self) -> list[Update]:
        """The newest `KEPT_UPDATES` updates, those of earlier processes included."""
        return list(self._updates)

    @property
    def times(self) -> list[float]:
        """When they were, by the backend's clock of their process, s."""
        return list(self._times)

    def __len__(self) -> int:
        """Return how many updates there have been in all."""
        return self._count

    def note(self, update: Update, at: float, tally: Tally) -> None:
        """Append an update; `at` is the backend's time, s."""
        if self._path is not None:
            line = {"update": self._count, "at": round(at, 6), **_row(update)}
            text = json.dumps(line | asdict(tally), allow_nan=False)
            self._unwritten += text.encode() + b"\n"
        self._remember(update, at)

    def _remember(self, update: Update, at: float) -> None:
        self._count += 1
        self._updates.append(update)
        self._times.append(at)

    def unwritten(self) -> Lines | None:
        """Return the lines that are not in the file; None when all are, or there is none."""
        if self._path is None or not self._unwritten:
            return None
        return Lines(self._path, self._written, self._unwritten)

    def wrote(self, lines: Lines) -> None:
        """Note that lines are in the file."""
        done = lines.start + len(lines.data) - self._written
        self._written, self._unwritten = self._written + done, self._unwritten[done:]

    @property
    def size(self) -> int:
        """How long the file is once `unwritten` lies in it, bytes."""
        return self._written + len(self._unwritten)

    def load(self, size: int) -> None:
        """Read the file as far as a checkpoint counts on it, bytes.

        Raises:
            TrustError: ``STO-T011`` when it is shorter, or was changed.
        """
        self._updates.clear()
        self._times.clear()
        self._count = 0
        if size and self._path is not None:
            self._read(self._path, size)
        self._written, self._unwritten = size, b""

    def _read(self, path: Path, size: int) -> None:
        try:
            with path.open("rb") as file:
                while file.tell() < size:
                    row = json.loads(file.readline(size - file.tell()))
                    self._remember(_update(row), float(row["at"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise damaged(f"{path.name}: {type(error).__name__}") from None


def _row(update: Update) -> dict[str, Plain]:
    row: dict[str, Plain] = {name: getattr(update, name) for name in _FIELDS}
    if not math.isfinite(update.loss):
        row["loss"] = None  # JSON has no infinity
    return row


def _update(row: Mapping[str, Any]) -> Update:
    wanted = {name: row[name] for name in _FIELDS}
    if wanted["loss"] is None:
        wanted["loss"] = math.nan
    return Update(**wanted)


_OTHERS = {"late", "given_up", "spent"}  # keys: of no interest later
_FIELDS = [one.name for one in fields(Update) if one.name not in _OTHERS]


_SHOWN = 3  # so many differences are named


def identify(
    method: Method, first: Snapshot, parts: Sequence[Part]
) -> dict[str, Plain]:
    """Return what tells this training from others; reads all data once."""
    privacy = getattr(getattr(method, "combine", None), "privacy", None)
    return {
        **({} if privacy is None else {"privacy": describe(privacy)}),
        "method": type(method).__name__,
        "settings": describe(getattr(method, "settings", None)),
        "optimizer": describe(getattr(method, "optimizer", None)),
        "schedule": describe(getattr(method, "schedule", None)),
        "parameters": _sum_up(first.parameters),
        "buffers": _sum_up(first.buffers),
        "data": _name_data(parts),
    }


def describe(value: object) -> Plain:
    """Return constants and settings as plain data; functions and arrays by name only."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | Path):
        return str(value) if isinstance(value, Path) else float(value)
    if isinstance(value, Mapping):
        return {str(name): describe(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [describe(one) for one in value]
    if isinstance(value, np.generic | np.ndarray):
        return digest_of(np.asarray(value))
    kind = type(value).__qualname__
    is_named = callable(value) and not is_dataclass(value)
    return getattr(value, "__qualname__", kind) if is_named else _public(kind, value)


def _public(kind: str, value: object) -> dict[str, Plain]:
    if is_dataclass(value):
        names = [one.name for one in fields(value)]
    else:
        names = [name for name in getattr(value, "__dict__", ()) if name[0] != "_"]
    return {"": kind, **{name: describe(getattr(value, name)) for name in names}}


def _sum_up(tensors: Tensors) -> Plain:
    forms = "\0".join(f"{n} {a.dtype} {a.shape}" for n, a in sorted(tensors.items()))
    digest = hashlib.sha256(forms.encode()).hexdigest()[:16]
    return f"{len(tensors)} arrays, {sum(a.size for a in tensors.values())} numbers, {digest}"


def _name_data(parts: Sequence[Part]) -> Plain:
    total = hashlib.sha256()
    for part in parts:
        total.update(name_part(part).encode())
    size = sum(map(len, parts))
    return f"{len(parts)} data parts, {size} samples, {total.hexdigest()[:16]}"


def check_identity(saved: Plain, ours: Plain) -> None:
    """Refuse a checkpoint of another training.

    Raises:
        UsageError: ``STO-T012`` naming the first differences.
    """
    found = list(_differ("", saved, ours))
    if found:
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise UsageError(
            "STO-T012",
            f"the checkpoint is of another training: {'; '.join(found[:_SHOWN])}{more}",
            hint="train as before, or give another folder",
        )


def _differ(name: str, one: Plain, other: Plain) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            below = f"{name}.{key}" if name and key else name or key
            yield from _differ(below, one.get(key), other.get(key))
    elif one != other:
        yield f"{name} was {_cut(one)}, is {_cut(other)}"


def _cut(value: Plain) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"  # noqa: PLR2004 - one line


@dataclass(frozen=True, slots=True)
class RunState:
    """What a run keeps besides its history."""

    ident: str  # of the run; part of every job's key
    memory: Memory  # of the norms of answers so far
    identity: dict[str, Any]  # see `identify`
    tally: Tally
    history: int  # bytes


class Saving:
    """Writes a run's state and history into its folder.

    Args:
        folder: of the run.
        history: whose lines are written with each save.
        tally: saved with it.
    """

    def __init__(self, folder: Path, history: History, tally: Tally) -> None:
        self.checkpoint = Checkpoint(folder)
        self._history, self._tally = history, tally
        self._identity: Mapping[str, Plain] = {}

    async def open(
        self, identity: Mapping[str, Plain]
    ) -> tuple[RunState, State] | None:
        """Take the folder and return what `save` was given; history and tally go on.

        Raises:
            TrustError: ``STO-T011`` when it is damaged.
            UsageError: ``STO-T012`` when it is of another training, ``STO-T023`` when
                another process trains there.
        """
        saved = await asyncio.to_thread(self.checkpoint.open)
        try:
            saved_run = None if saved is None else self._take_up(saved, dict(identity))
        except BaseException:
            self.checkpoint.close()
            raise
        self._identity = identity
        return saved_run

    def _take_up(
        self, saved: State, identity: dict[str, Plain]
    ) -> tuple[RunState, State]:
        run = parse(select(saved, "run"), RunState)
        check_identity(run.identity, identity)
        self._tally.take_up(run.tally)
        self._history.load(run.history)
        return run, saved

    async def save(
        self, ident: str, memory: Memory, states: Mapping[str, State]
    ) -> None:
        """Write the run as it is now.

        Raises:
            InternalError: ``STO-T022`` when the disk does not take it.
        """
        known = dict(self._identity), self._tally, self._history.size
        run = render(RunState(ident, memory, *known))
        state = join_states(run=run, **states)
        work = asyncio.ensure_future(asyncio.to_thread(self._write, state))
        try:
            # Half a save must not go on beside the next one: wait for it, then leave.
            await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])
            raise

    def _write(self, state: State) -> None:
        lines = self._history.unwritten()
        self.checkpoint.write(state, lines)
        if lines is not None:
            self._history.wrote(lines)

    def close(self) -> None:
        """Let the folder go."""
        self.checkpoint.close()

"""Hand a training over to a coordinator, and take it up again from anywhere.

run = await learn.hand_over("coordinator.json", "vcasgd", model, data, account="me.json")
run.id                                  # keep it; the laptop may be closed
run = learn.take_up(run.id, coordinator="coordinator.json")
await run.progress(), await run.log(), await run.wait(), await run.bring_home(folder)
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from stoilo.client.address import read_connection
from stoilo.client.capture.arguments import StoredValue
from stoilo.learn.coordinator.kept import FILES, Progress
from stoilo.learn.coordinator.service import (
    PIECE_BYTES,
    Ask,
    Fetch,
    ListRuns,
    Offer,
    PutPiece,
    Start,
)
from stoilo.learn.coordinator.sheet import PartRow, load_snapshot, refuse, write_sheet
from stoilo.learn.core.data import Part
from stoilo.learn.core.models import TorchModel
from stoilo.learn.core.orders import Snapshot
from stoilo.learn.methods.buffers import find_momentum
from stoilo.learn.store import protocol as p
from stoilo.learn.store.client import NetworkPeer
from stoilo.learn.store.place import read_place
from stoilo.learn.trainers.fitting import make_trainer
from stoilo.learn.trainers.options import Loss, TrainerOptions, as_held_out

# A coordinator that is started again is waited for.
LIMITS: Final = {"lives": 5, "limit_s": 60.0, "takeover_s": 8.0}
Where = str | os.PathLike[str]
T = TypeVar("T")


class _Peer:
    """A coordinator, a stream for each request: every one may be repeated."""

    def __init__(self, where: Where) -> None:
        self._place = read_place(Path(where))

    async def ask(self, request: p.Command[T]) -> T:
        """Return the answer; raises what the coordinator refused, or ``STO-T037``."""
        return await asyncio.to_thread(self._ask, request)

    def _ask(self, request: p.Command[T]) -> T:
        peer = NetworkPeer(None, self._place, **LIMITS)
        try:
            return peer.ask(request)
        finally:
            peer.close()


class HandedRun:
    """A training at a coordinator, for who handed it over: any machine, his token.

    Attributes:
        id: of the training there.
    """

    def __init__(self, ident: str, peer: _Peer) -> None:
        self.id, self._peer = ident, peer

    def __repr__(self) -> str:
        return f"HandedRun({self.id})"

    async def progress(self) -> Progress:
        """Return how far it is."""
        return await self._peer.ask(Ask(self.id))

    async def wait(self, pause_s: float = 2.0) -> Progress:
        """Wait for its end, asking every `pause_s` s; how it ended is in the answer."""
        while not (found := await self.progress()).is_over:  # noqa: ASYNC110 - it is elsewhere
            await asyncio.sleep(pause_s)
        return found

    async def stop(self) -> Progress:
        """End it where it is; its newest version can be brought home."""
        return await self._peer.ask(Ask(self.id, "stop"))

    async def forget(self) -> None:
        """Remove it there, once it is over."""
        await self._peer.ask(Ask(self.id, "forget"))

    async def log(self) -> str:
        """Return the updates so far, a JSON object a line; partial while it runs."""
        whole = (await self._read("history.jsonl")).decode()
        return whole[: whole.rfind("\n") + 1]

    async def snapshot(self) -> Snapshot:
        """Return the version that it ended with; raises ``STO-T040`` before the end."""
        version = (await self.progress()).version
        return load_snapshot(await self._read("model.safetensors"), version)

    async def bring_home(self, folder: Where) -> Path:
        """Write log, csv and model into `folder`; raises ``STO-T040`` before the end."""
        place = Path(folder)
        found = {name: await self._read(name) for name in reversed(FILES)}
        await asyncio.to_thread(_write, place, found)
        return place

    async def _read(self, name: str) -> bytes:
        return b"".join([piece async for piece in self._pieces(name)])

    async def _pieces(self, name: str) -> AsyncIterator[bytes]:
        offset = 0
        while piece := await self._peer.ask(Fetch(self.id, name, offset)):
            yield piece
            offset += len(piece)

    async def send(self, digest: str, data: bytes) -> None:
        """Send one blob."""
        for at in range(0, max(1, len(data)), PIECE_BYTES):
            piece, is_last = data[at : at + PIECE_BYTES], at + PIECE_BYTES >= len(data)
            await self._peer.ask(PutPiece(self.id, digest, at, piece, is_last))

    async def begin(self, token: str) -> Progress:
        """Let it begin with all its blobs there."""
        return await self._peer.ask(Start(self.id, token))


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        if data:  # without held-out data there is no evaluation
            (folder / name).write_bytes(data)


def take_up(ident: str, *, coordinator: Where) -> HandedRun:
    """Return a training that was handed over before, here or on another machine."""
    return HandedRun(ident, _Peer(coordinator))


async def list_handed(coordinator: Where) -> dict[str, Progress]:
    """Return the trainings at a coordinator that this token handed over."""
    return await _Peer(coordinator).ask(ListRuns())


async def hand_over(
    coordinator: Where,
    method: str,
    model: object,
    data: object,
    *,
    account: Where,
    loss: Loss | None = None,
    options: TrainerOptions | None = None,
    **settings: Any,  # noqa: ANN401 - as `fit` has them
) -> HandedRun:
    """Let a coordinator train as `fit` would; return once all is there and begun.

    The same training twice is the same one there: after a lost line, call again. What
    would need this process (callbacks, functions as schedules, folders, a
    `ParameterServer`, torch's optimisers) is refused by name before anything leaves.

    Args:
        coordinator: connection file that its operator gave to you.
        method: as for `fit`.
        model: as for `fit`.
        data: as for `fit`.
        account: connection file at the server, made for this (``stoilo account add NAME
            --days N``): its token is handed over and stays there until the training ends.
        loss: as for `fit`.
        options: of those, what travels; `held_out` is evaluated by volunteers at each
            epoch's end.
        settings: as for `fit`: epochs, batch, rate, optimizer, those of the method's own.

    Raises:
        UsageError: ``STO-T040`` naming what cannot be handed over; as `fit`.
        DeniedError: ``STO-R004``, ``STO-R006``, the coordinator's bounds.
    """
    chosen, token = options or TrainerOptions(), read_connection(Path(account)).token
    trainer = make_trainer(method, model, data, options=chosen, loss=loss, **settings)
    if method == "dpbgd" and isinstance(trainer.form, TorchModel):
        momentum = find_momentum(trainer.form.module)
        settings.setdefault("bn_momentum", momentum)
    if not token:
        raise refuse("a training without a token at the server")
    held_out = as_held_out(chosen.held_out)
    parts = [*trainer.parts, *([] if held_out is None else [held_out])]
    rows = [_row_of(part) for part in parts]
    known = {row.digest: part for row, part in zip(rows, parts, strict=True)}
    held = None if held_out is None else rows.pop()
    sheet, blobs = write_sheet(method, trainer, settings, held, rows)
    await trainer.close()  # vectors at shards are one process's at a time
    return await _send(
        _Peer(coordinator), msgspec.json.encode(sheet), blobs, known, token
    )


async def _send(
    peer: _Peer,
    sheet: bytes,
    blobs: Mapping[str, bytes],
    parts: Mapping[str, Part],
    token: str,
) -> HandedRun:
    """Offer the sheet, send what is missing there, and begin."""
    offered = await peer.ask(Offer(sheet))
    run = HandedRun(offered.run, peer)
    for digest in offered.missing:
        if digest in blobs:
            data = blobs[digest]
        else:
            _, data = await asyncio.to_thread(_encode, parts[digest])
        await run.send(digest, data)
    await run.begin(token)
    return run


def _encode(part: Part) -> tuple[StoredValue, bytes]:
    return StoredValue.of({"x": part.x, "y": part.y})


def _row_of(part: Part) -> PartRow:
    return PartRow(_encode(part)[0].digest, len(part), part.nbytes)

"""What a training of `stoilo.learn.parallel` left in its folder, as files for each node."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import safetensors.numpy

from stoilo.core.files import write_durably
from stoilo.learn.core.checkpoint import Checkpoint
from stoilo.learn.core.orders import Snapshot
from stoilo.learn.core.states import State, parse, select
from stoilo.learn.driver.saving import History
from stoilo.learn.trainers.epochs import EpochMetrics


def reclaim(folder: Path, title: str = "P-SGD") -> tuple[Path, ...]:
    """Write the files of each node, from any process, whoever trained; return them.

    ``TR-title-N(k).csv`` has each answer of node k, also while the training goes on. Once
    nobody trains there, ``EV-title-N(k).csv`` has the evaluation of each epoch, the same for
    all nodes, which have one model: ``MODEL-title.safetensors``, its newest version.

    Raises:
        TrustError: ``STO-T011``.
    """
    lines = folder / "history.jsonl"
    history = History(lines)
    # A line that is being written is none yet.
    history.load(lines.read_bytes().rfind(b"\n") + 1 if lines.exists() else 0)
    rows: dict[str, list[Sequence[object]]] = {}
    for at, one in zip(history.times, history.updates, strict=True):
        row = (at, one.epoch, one.key, one.loss, one.samples, one.staleness)
        rows.setdefault(one.key.rpartition("/n")[2], []).append((*row, one.applied))
    head = ("at_s", "epoch", "key", "loss", "samples", "staleness", "counted")
    files = {
        f"TR-{title}-N({k}).csv": render_table(head, own) for k, own in rows.items()
    }
    files |= _read_end(folder, title, [*rows])
    for name, content in files.items():
        write_durably(folder / name, content)
    return tuple(folder / name for name in sorted(files))


def judge(epoch: EpochMetrics) -> tuple[float, float | None]:
    """Return loss and accuracy on held-out data; else the loss that volunteers say."""
    held = epoch.held_out
    return (held.loss, held.accuracy) if held else (epoch.average_loss, None)


def _read_end(folder: Path, title: str, nodes: Sequence[str]) -> dict[str, bytes]:
    saved = Checkpoint(folder).peek()
    if saved is None:
        return {}
    inner, beside = select(select(saved, "method"), "method"), select(saved, "beside")
    snapshot = parse(_pick(inner, "snapshot"), Snapshot)
    table = render_table(
        ("epoch", "loss", "accuracy", "samples", "seconds"),
        [
            (one.epoch, *judge(one), one.samples, one.seconds)
            for one in parse(_pick(beside, "ended"), list[EpochMetrics])
        ],
    )
    weights = safetensors.numpy.save(dict(snapshot.parameters))
    every = {f"EV-{title}-N({node}).csv": table for node in nodes}
    return {**every, f"MODEL-{title}.safetensors": weights}


def _pick(state: State, name: str) -> State:
    return replace(state, plain=state.plain[name])  # type: ignore[arg-type]  # whatever was rendered


def render_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> bytes:
    """Return rows under their columns' names, as csv."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    return text.getvalue().encode()

"""A run on disk: one safetensors file, replaced as a whole; nothing in it is code."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from stoilo.core.errors import TrustError
from stoilo.learn.work import Plain, State

__all__ = ["read_checkpoint", "write_checkpoint"]

NAME = "run.safetensors"
_FORMAT = "stoilo-run-1"
MOST_BYTES = 64 << 30


def write_checkpoint(folder: Path, state: State) -> None:
    """Replace the run's file; after a crash either the old or the new one is there."""
    text = json.dumps(state.plain, allow_nan=False, separators=(",", ":"))
    arrays = {
        name: np.require(a, requirements="C") for name, a in state.tensors.items()
    }
    data = save(arrays, {"format": _FORMAT, "state": text})
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f"{NAME}.new"
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / NAME)
    _sync(folder)


def _sync(folder: Path) -> None:
    place = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(place)
    finally:
        os.close(place)


def read_checkpoint(folder: Path) -> State | None:
    """Return the run's saved state, or None when there is none.

    Raises:
        TrustError: ``STO-T011`` when the file is not one of ours or is damaged.
    """
    path = folder / NAME
    try:
        if path.stat().st_size > MOST_BYTES:
            raise _damaged("it is too large")
    except FileNotFoundError:
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            about = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        if about.get("format") != _FORMAT:
            raise _damaged("it was not written by a run")
        plain = json.loads(about["state"])
    except (SafetensorError, ValueError, KeyError, OSError, RecursionError) as error:
        raise _damaged(type(error).__name__) from None
    if not isinstance(plain, dict):
        raise _damaged("its state has no names")
    return State(tensors, cast("Mapping[str, Plain]", plain))


def _damaged(why: str) -> TrustError:
    return TrustError(
        "STO-T011",
        f"the checkpoint cannot be read: {why}",
        hint="give another folder, or remove the file to begin anew",
    )

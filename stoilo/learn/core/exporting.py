"""A trained model as files that others read: safetensors in Hugging Face's layout.

    model.safetensors                   all weights, where they are small enough, else
    model-00001-of-00003.safetensors    …
    model.safetensors.index.json        name of a weight → file, and the bytes of all
    config.json                         where the model has a configuration

Nothing is pickled. Weights that are one tensor under several names stand there once, under
the first name, as `safetensors.torch.load_model` expects them.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from stoilo.core.errors import UsageError

SHARD_BYTES = 5_000_000_000  # of one file, where weights can be divided: the usual size
_INDEX = "model.safetensors.index.json"


def export(model: object, folder: str | Path, shard_bytes: int = SHARD_BYTES) -> Path:
    """Write a model into `folder`, in place of one that is there; return the folder.

    Args:
        model: a torch module, or a mapping of arrays by name (`Trained.model` is either).
        folder: made if missing; other files in it stay.
        shard_bytes: most bytes of weights in a file; a larger one has a file of its own.

    Raises:
        UsageError: ``STO-T040`` for what has no weights, or a configuration not of JSON.
    """
    weights, config = _read_weights(model), _read_config(model)
    shards = _divide(weights, shard_bytes)
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    files: dict[str, Any] = {
        _name(at, len(shards)): one for at, one in enumerate(shards)
    }
    # Without its index nobody takes old shards for a model while new ones are written.
    for earlier in (_INDEX, "model.safetensors", "config.json"):
        place.joinpath(earlier).unlink(missing_ok=True)
    for name, shard in files.items():
        _save({one: weights[one] for one in shard}, place / name)
    for stale in {one.name for one in place.glob("model-*-of-*.safetensors")} - {
        *files
    }:
        place.joinpath(stale).unlink()
    if config is not None:
        place.joinpath("config.json").write_text(config, encoding="utf-8")
    if len(shards) > 1:
        where = {one: name for name, shard in files.items() for one in shard}
        index = {"metadata": {"total_size": _size(weights)}, "weight_map": where}
        place.joinpath(_INDEX).write_text(json.dumps(index, indent=2) + "\n", "utf-8")
    return place


def _read_weights(model: object) -> dict[str, Any]:
    """Return name → tensor or array, each tensor once."""
    state = model.state_dict() if hasattr(model, "state_dict") else model
    if not isinstance(state, Mapping) or not state:
        raise UsageError(
            "STO-T040",
            f"a {type(model).__name__} has no weights to be written",
            hint="give a torch module, or arrays by name: what trained.model is",
        )
    if not hasattr(model, "state_dict"):
        return {name: np.ascontiguousarray(array) for name, array in state.items()}
    seen: set[tuple[Any, ...]] = set()
    found = {}
    for name, tensor in state.items():
        form = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        if form not in seen or not tensor.numel():
            found[name] = tensor.detach().cpu().contiguous().clone()
        seen.add(form)
    return found


def _read_config(model: object) -> str | None:
    config = getattr(model, "config", None)
    if config is not None and hasattr(config, "to_json_string"):
        return str(config.to_json_string())
    if is_dataclass(config) and not isinstance(config, type):
        config = asdict(config)
    if not isinstance(config, Mapping):
        return None
    try:
        return json.dumps(dict(config), indent=2, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise UsageError(
            "STO-T040", f"the model's config cannot be JSON: {str(error)[:120]}"
        ) from None


def _divide(weights: Mapping[str, Any], most: int) -> list[list[str]]:
    """Return the names of each file, in their order."""
    shards: list[list[str]] = [[]]
    filled = 0
    for name, weight in weights.items():
        if shards[-1] and filled + weight.nbytes > most:
            shards.append([])
            filled = 0
        shards[-1].append(name)
        filled += weight.nbytes
    return shards


def _name(at: int, count: int) -> str:
    if count == 1:
        return "model.safetensors"
    return f"model-{at + 1:05}-of-{count:05}.safetensors"


def _size(weights: Mapping[str, Any]) -> int:
    return sum(weight.nbytes for weight in weights.values())


def _save(weights: dict[str, Any], file: Path) -> None:
    fresh = file.with_name(f".{file.name}.new")
    try:
        if isinstance(next(iter(weights.values())), np.ndarray):
            safetensors.numpy.save_file(weights, fresh, {"format": "np"})
        else:
            from safetensors.torch import save_file  # noqa: PLC0415 - only with torch

            # Readers of the layout refuse files that do not say it.
            save_file(weights, fresh, {"format": "pt"})
        fresh.replace(file)
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink()

"""`torch.utils.data`: loaders that load in the task's own thread.

Worker processes, pinned memory and time-outs do not exist; the order of the batches and
what the seed gives is that of a loader without workers.
"""

from __future__ import annotations

from typing import Any

from torch.utils import data
from torch.utils.data import dataloader

from stoilo.core.levels import Level

__all__ = ["DataLoader", "build"]

_NO_WORKERS = {
    "num_workers": 0,
    "pin_memory": False,
    "timeout": 0,
    "worker_init_fn": None,
    "multiprocessing_context": None,
}
_ORDER = (
    *("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers"),
    *("collate_fn", "pin_memory", "drop_last", "timeout", "worker_init_fn"),
    *("multiprocessing_context", "generator"),
)
_KEPT = frozenset(_ORDER)


class DataLoader(data.DataLoader[Any]):
    """``torch.utils.data.DataLoader`` without workers."""

    def __init__(self, *args: Any, **options: Any) -> None:
        given = dict(zip(_ORDER, args, strict=False)) | options
        kept = {name: value for name, value in given.items() if name in _KEPT}
        super().__init__(**(kept | _NO_WORKERS))


def _no_workers(_loader: Any) -> Any:
    raise RuntimeError("a task has no worker processes: num_workers=0")


def _nothing(_loader: Any, _value: Any = None) -> None:
    """Stand for what a loader says of processes: a context of them is a road to modules."""


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    library: Any = dataloader
    library._MultiProcessingDataLoaderIter = _no_workers  # noqa: SLF001 - what would start processes
    data.DataLoader.multiprocessing_context = property(_nothing, _nothing)  # type: ignore[method-assign, assignment]  # see there
    data.DataLoader.check_worker_number_rationality = _nothing  # type: ignore[method-assign, assignment]  # counts processors
    DataLoader.__module__ = "torch.utils.data"
    return {"DataLoader": DataLoader}

"""stoilo: run a Python function on volunteers' computers.

    import stoilo

    conn = await stoilo.connect("path/to/connection.json")
    task = conn.create_task(kwargs={"a": 2, "b": 3}, func=lambda kw: kw["a"] + kw["b"])
    print(await task.result())

The names below are imported when they are first used: ``import stoilo`` alone loads
neither gRPC nor rich.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stoilo import ddl as ddl
    from stoilo import learn as learn
    from stoilo import low_level
    from stoilo import ml as ml
    from stoilo import testing as testing
    from stoilo.client.address import Address
    from stoilo.client.capture.arguments import StoredValue
    from stoilo.client.capture.library import send_source_of
    from stoilo.client.chunks import MapProgress
    from stoilo.client.connection import Connection, connect
    from stoilo.client.futures import Executor, TaskFuture
    from stoilo.client.mapping import MapItem, MapRun
    from stoilo.client.options import CreateOptions, TaskLimits
    from stoilo.client.results import SystemError as SystemError  # noqa: A004 - thesis
    from stoilo.client.results import TaskResult, TimedOut, UserError
    from stoilo.client.status import TaskStatus
    from stoilo.client.sync import (
        SyncConnection,
        SyncMapRun,
        SyncStagedTask,
        SyncSubmittedTask,
        as_completed,
        connect_sync,
    )
    from stoilo.client.task import StagedTask, SubmittedTask
    from stoilo.client.wire import SourceRefused
    from stoilo.core.errors import StoiloError
    from stoilo.local import local

__version__ = "0.1.0"

_PLACES = {
    "Address": "stoilo.client.address",
    "Connection": "stoilo.client.connection",
    "CreateOptions": "stoilo.client.options",
    "Executor": "stoilo.client.futures",
    "MapItem": "stoilo.client.mapping",
    "MapProgress": "stoilo.client.chunks",
    "MapRun": "stoilo.client.mapping",
    "SourceRefused": "stoilo.client.wire",
    "StagedTask": "stoilo.client.task",
    "StoiloError": "stoilo.core.errors",
    "StoredValue": "stoilo.client.capture.arguments",
    "SubmittedTask": "stoilo.client.task",
    "SyncConnection": "stoilo.client.sync",
    "SyncMapRun": "stoilo.client.sync",
    "SyncStagedTask": "stoilo.client.sync",
    "SyncSubmittedTask": "stoilo.client.sync",
    "SystemError": "stoilo.client.results",
    "TaskFuture": "stoilo.client.futures",
    "TaskLimits": "stoilo.client.options",
    "TaskResult": "stoilo.client.results",
    "TaskStatus": "stoilo.client.task",
    "TimedOut": "stoilo.client.results",
    "UserError": "stoilo.client.results",
    "as_completed": "stoilo.client.sync",
    "connect": "stoilo.client.connection",
    "connect_sync": "stoilo.client.sync",
    "local": "stoilo.local",
    "send_source_of": "stoilo.client.capture.library",
}
_MODULES = ("ddl", "joblib", "learn", "low_level", "ml", "testing")

__all__ = [
    "Address",
    "Connection",
    "CreateOptions",
    "Executor",
    "MapItem",
    "MapProgress",
    "MapRun",
    "SourceRefused",
    "StagedTask",
    "StoiloError",
    "StoredValue",
    "SubmittedTask",
    "SyncConnection",
    "SyncMapRun",
    "SyncStagedTask",
    "SyncSubmittedTask",
    "SystemError",
    "TaskFuture",
    "TaskLimits",
    "TaskResult",
    "TaskStatus",
    "TimedOut",
    "UserError",
    "as_completed",
    "connect",
    "connect_sync",
    "local",
    "low_level",
    "send_source_of",
]


def load_ipython_extension(shell: object) -> None:
    """Bring the cell magic ``%%stoilo``: ``%load_ext stoilo``."""
    importlib.import_module("stoilo.client.notebook").register(shell)


def __getattr__(name: str) -> object:
    """Import a public name at its first use (PEP 562)."""
    if name in _PLACES:
        value = getattr(importlib.import_module(_PLACES[name]), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        try:
            return importlib.import_module(f"stoilo.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"stoilo.{name}":
                raise
    raise AttributeError(f"module 'stoilo' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted([*__all__, "learn", "__version__"])

"""`networkx`: graphs in memory; no backends, no files, nothing compiled while a task runs."""

from __future__ import annotations

import functools
import gc
import importlib
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from stoilo.core.levels import Level
from stoilo.sandbox.language.rules import GuardError
from stoilo.sandbox.libraries.packages import bind_classes, refuse, shut_builtins

for _name in ("approximation", "bipartite", "community"):
    # networkx shows them under a second name (``nx.community``), which Python cannot import
    _real = importlib.import_module(f"networkx.algorithms.{_name}")
    sys.modules.setdefault(f"networkx.{_name}", _real)


class _Answer:
    """A method whose answer is the same for every instance, and for the class."""

    __slots__ = ("_method",)

    def __init__(self, answer: bool) -> None:
        self._method = (_yes if answer else _no).__get__(answer)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self._method


def _yes(_answer: object, _graph: object = None) -> bool:
    return True


def _no(_answer: object, _graph: object = None) -> bool:
    return False


def _is_uncompiled(value: Any) -> bool:
    return type(value) is FunctionType and (
        "_lazy_compile" in value.__code__.co_names and "__argmap__" in vars(value)
    )


@functools.cache
def _prepare() -> None:
    """Compile what networkx compiles at first call, then shut it; once a process."""
    decorators: Any = importlib.import_module("networkx.utils.decorators")
    backends: Any = importlib.import_module("networkx.utils.backends")
    for function in filter(_is_uncompiled, gc.get_objects()):
        decorators.argmap._lazy_compile(function)  # noqa: SLF001 - what its first call does
    networkx: Any = importlib.import_module("networkx")
    kinds = (
        networkx.Graph,
        networkx.DiGraph,
        networkx.MultiGraph,
        networkx.MultiDiGraph,
    )
    for graph in kinds:  # networkx asks these of a class, with None for an instance
        for name in ("is_directed", "is_multigraph"):
            setattr(graph, name, _Answer(getattr(graph, name)(None)))
    kind = backends._dispatchable  # noqa: SLF001 - its one class for functions
    kind.__call__ = kind._call_if_no_backends_installed  # noqa: SLF001 - as without backends
    sys.modules.setdefault("pandas", None)  # type: ignore[arg-type]  # asked for by name
    backends._load_backend = refuse  # noqa: SLF001 - imports what is installed
    shut_builtins("networkx")
    bind_classes("networkx")


def _without_clock(function: Callable[..., Any], place: int) -> Callable[..., Any]:
    """Return `function` that takes no ``timeout``, its parameter number `place`.

    A search that a clock ends gives another answer on every copy.
    """

    @functools.wraps(function, updated=())
    def call(*args: Any, **options: Any) -> Any:
        given = args[place] if len(args) > place else options.get("timeout")
        if given is not None:
            raise GuardError(
                "STO-G108",
                "a timeout ends a search elsewhere on every computer",
                hint="bound the search with upper_bound",
            )
        return function(*args, **options)

    return call


def _build(_level: Level) -> dict[str, object]:
    _prepare()
    networkx: Any = importlib.import_module("networkx")
    timed = {"graph_edit_distance": 12, "optimize_edit_paths": 13}
    return {
        name: _without_clock(getattr(networkx, name), place)
        for name, place in timed.items()
    }


FACADES: dict[str, object] = {"networkx": _build}

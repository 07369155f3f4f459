"""Every function and class of some library modules, captured as if it were a researcher's.

Whatever they look like, capture ends in a module that compiles or in one of our errors.
"""

from __future__ import annotations

import importlib
import types
from collections import Counter
from collections.abc import Iterator

import pytest

from stoilo.client.capture import capture_calls, library
from stoilo.core.errors import UsageError

MODULES = [
    *("textwrap", "statistics", "fractions", "heapq", "bisect", "difflib", "colorsys"),
    *("string", "calendar", "random", "copy", "json.decoder", "json.encoder"),
    *("tokenize", "csv", "shlex", "graphlib", "pprint", "html.parser"),
]


@pytest.fixture
def as_own() -> Iterator[list[types.ModuleType]]:
    modules = [importlib.import_module(name) for name in MODULES]
    library.send_source_of(*modules)
    yield modules
    library._as_source.clear()
    library.is_library_module.cache_clear()


LOST = ("cannot be found", "has changed", "written down")


def test_any_function_becomes_a_module_or_a_refusal(
    as_own: list[types.ModuleType],
) -> None:
    ends: Counter[str] = Counter()
    lost = []
    for module in as_own:
        for value in list(vars(module).values()):
            if not isinstance(value, types.FunctionType | type):
                continue
            if value.__module__ != module.__name__:
                continue
            try:
                made = capture_calls(value, [{"args": [], "kwargs": {}}], spread=True)
                compile(made.task_module, "captured", "exec")
                ends["captured"] += 1
            except UsageError as error:
                ends[error.code] += 1
                if any(words in error.message for words in LOST):
                    lost.append(error.message)
    assert ends["captured"] > 70, ends
    assert lost == []

# ruff: noqa: PLW0108 - the lambda is what is captured
from __future__ import annotations

import hashlib
import heapq
import importlib
import math
import random
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stoilo.client.capture import capture_task, library
from stoilo.core.errors import UsageError


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (math.sin, ("math", "sin")),
        (heapq.heappush, ("heapq", "heappush")),
        (statistics.mean, ("statistics", "mean")),
        (random.gauss, ("random", "gauss")),
        (np.sin, ("numpy", "sin")),
        (np.linalg.solve, ("numpy.linalg", "solve")),
        (hashlib.sha256, ("hashlib", "sha256")),
        (lambda: 1, None),
    ],
)
def test_library_objects_are_found_under_public_names(
    value: object, path: tuple[str, str] | None
) -> None:
    assert library.library_path(value, "sha256") == path


def test_what_is_a_library_and_what_is_not() -> None:
    for name in ("math", "numpy.linalg", "json.decoder", "pytest", "stoilo.client"):
        assert library.is_library_module(name), name
    for name in ("__main__", "", __name__):
        assert not library.is_library_module(name), name


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A package of the researcher's own that looks installed."""
    (tmp_path / "mylab.py").write_text("def work(kw):\n    return kw['x'] + 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(library, "_library_folders", lambda: (tmp_path,))
    library.is_library_module.cache_clear()
    mylab = importlib.import_module("mylab")

    yield mylab
    sys.modules.pop("mylab")
    library._as_source.discard("mylab")
    monkeypatch.undo()
    library.is_library_module.cache_clear()


def test_an_installed_package_travels_as_source_when_asked(installed: Any) -> None:
    with pytest.raises(UsageError, match="STO-C012"):
        capture_task(lambda kw: installed.work(kw), {"x": 1})
    library.send_source_of(installed)
    source = capture_task(lambda kw: installed.work(kw), {"x": 1}).task_module
    assert "def work(kw):" in source

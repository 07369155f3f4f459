"""Runtimes of the language layer, in this process."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from stoilo.core.levels import Level, parse_level
from stoilo.sandbox.loader import LanguageRuntime, prepare_runtime

PROGRAMS = Path(__file__).parent / "programs" / "benign"


def read_level(name: str) -> Level:
    folder = resources.files("stoilo.policies") / "levels"
    return parse_level((folder / f"{name}.toml").read_bytes())


@pytest.fixture(scope="session")
def levels() -> dict[str, Level]:
    return {name: read_level(name) for name in ("pure", "numeric")}


@pytest.fixture(scope="session")
def runtimes(levels: dict[str, Level]) -> Iterator[dict[str, LanguageRuntime]]:
    call = enum.EnumMeta.__call__
    yield {name: prepare_runtime(level) for name, level in levels.items()}
    enum.EnumMeta.__call__ = call  # type: ignore[method-assign]  # the façade's patch

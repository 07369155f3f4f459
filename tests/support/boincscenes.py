"""Scenes with real BOINC clients, side by side: a client mostly waits, each for itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.boincproject import BoincProject

__all__ = ["Scene", "Scenes"]

Scene = Callable[[BoincProject], None]
"""What happens in a project that nobody else has."""


class Scenes:
    """Scenes that all begin at once, each in a thread and with a project of its own.

    Leaving the block waits for the end of every one.

    Args:
        frozen: data directory of `freeze_project` that each project gets a copy of.
        scenes: what happens.
    """

    def __init__(self, frozen: Path, scenes: Sequence[Scene]) -> None:
        self._frozen = frozen
        self._pool = ThreadPoolExecutor(len(scenes))
        self._running = {one: self._pool.submit(self._play, one) for one in scenes}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown()

    def check(self, scene: Scene) -> None:
        """Wait for the end of a scene; raises what it has raised."""
        self._running[scene].result()

    def _play(self, scene: Scene) -> None:
        with BoincProject(self._frozen) as project:
            scene(project)

"""A training that is shown: how long a step will take, then what happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Self

from stoilo.learn.display import Display
from stoilo.learn.timing import Estimate
from stoilo.learn.trainers.options import TrainerOptions

__all__ = ["Progress"]


class Progress:
    """The display of one training, or none.

    Args:
        wanted: whether to show it, or where.
    """

    def __init__(self, wanted: bool | Display) -> None:
        usual = Display() if wanted else None
        self.display = wanted if isinstance(wanted, Display) else usual
        self._has_begun = False

    def watch(self, options: TrainerOptions) -> TrainerOptions:
        """Return the options with the display in them."""
        if self.display is None:
            return options
        return replace(options, watcher=self.display, on_epoch=self.display.end_epoch)

    async def begin(self, estimate: Callable[[], Estimate]) -> None:
        """Print the estimate and begin to draw; nothing the second time."""
        if self.display is None or self._has_begun:
            return
        self.display.say(str(await asyncio.to_thread(estimate)))
        self._has_begun = True
        self.display.__enter__()

    def end(self) -> None:
        """Draw a last time."""
        if self.display is not None and self._has_begun:
            self._has_begun = False
            self.display.__exit__()

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """End it."""
        self.end()

"""`tqdm`: the shape of a progress bar, which nobody sees: it counts and shows nothing.

Written for tasks; the library itself is not needed anywhere.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Self

from stoilo.core.levels import Level

__all__ = ["build"]


class tqdm:  # noqa: N801 - the library's name
    """``tqdm.tqdm`` without a terminal.

    Attributes:
        n: steps so far.
        total: steps in all, None where nobody knows.
        desc: what was set as description.
        disable: as in the library: nothing is shown.
    """

    __slots__ = ("_iterable", "desc", "disable", "n", "total")

    def __init__(
        self,
        iterable: Any = None,
        desc: str = "",
        total: Any = None,
        *_options: object,
        initial: Any = 0,
        **_more: object,
    ) -> None:
        if total is None and hasattr(iterable, "__len__"):
            total = len(iterable)
        self._iterable, self.desc, self.total = iterable, desc, total
        self.n, self.disable = initial, True

    def __iter__(self) -> Iterator[Any]:
        for item in self._iterable:
            yield item
            self.n += 1

    def __len__(self) -> int:
        return len(self._iterable) if self.total is None else int(self.total)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        return None

    def update(self, n: Any = 1) -> bool:
        """Count `n` more steps; nothing is shown."""
        self.n += n
        return False

    def reset(self, total: Any = None) -> None:
        """Begin again."""
        self.n = 0
        self.total = self.total if total is None else total

    def set_description(self, desc: str = "", refresh: bool = True) -> None:
        """Set the description, with the library's colon."""
        del refresh
        self.desc = f"{desc}: " if desc else ""

    def set_description_str(self, desc: str = "", refresh: bool = True) -> None:
        """Set the description."""
        del refresh
        self.desc = desc

    def set_postfix(self, *_values: object, **_more: object) -> None:
        """Do nothing."""

    set_postfix_str = refresh = clear = display = unpause = set_postfix

    def close(self) -> None:
        """Do nothing: nothing is open."""

    @classmethod
    def write(cls, s: Any, file: Any = None, end: str = "\n", **_more: object) -> None:
        """Print the text, as the library does above its bar."""
        text = f"{s}{end}"
        (sys.stdout if file is None else file).write(text)


def trange(*bounds: Any, **options: Any) -> tqdm:
    """``tqdm.trange``."""
    return tqdm(range(*bounds), **options)


tqdm.__module__ = "tqdm"


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    return {"tqdm": tqdm, "trange": trange}

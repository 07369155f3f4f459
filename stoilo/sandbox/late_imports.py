"""Notices what libraries ask for after the jail has closed, when nothing can be loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["LATE_IMPORTS", "LateImports"]


class LateImports:
    """A finder that finds nothing and remembers that it was asked.

    Attributes:
        asked: whether anything was missed since the zygote was ready.
    """

    def __init__(self) -> None:
        self.asked = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> None:
        """Note the question and leave it to the next finder, whose files are shut off."""
        del name, path, target
        self.asked = True

    def noting(self, importer: Callable[..., None]) -> Callable[..., None]:
        """Return `importer`, a task's ``__import__``, with its failures noted."""

        def import_noted(name: str, *more: object) -> None:
            try:
                importer(name, *more)
            except ModuleNotFoundError:
                self.asked = True
                raise

        return import_noted


LATE_IMPORTS = LateImports()

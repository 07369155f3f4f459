"""Where the outside names of a captured function or class are looked up."""

from __future__ import annotations

import builtins
import types
from dataclasses import dataclass, field

from stoilo.client.capture.scopes import External

MISSING = object()
"""The name is bound nowhere outside (it may be a built-in)."""


@dataclass(frozen=True, eq=False)
class Outside:
    """The surroundings of one unit, as they are now."""

    globals: dict[str, object]  # the module dictionary
    # closure cells by name
    cells: dict[str, types.CellType] = field(default_factory=dict)
    # values known by other ways (bases of a local class), by name
    extra: dict[str, object] = field(default_factory=dict)

    def is_cell(self, external: External) -> bool:
        """Whether the name means a closure cell here."""
        return external.name in self.cells and not external.declared_global

    def value_of(self, external: External) -> object:
        """Return what the name holds now; `MISSING` when nothing does.

        Raises:
            ValueError: the closure cell is still empty.
        """
        if external.name in self.extra:
            return self.extra[external.name]
        if self.is_cell(external):
            return self.cells[external.name].cell_contents
        found = self.globals.get(external.name, MISSING)
        return MISSING if _is_shells_own(external.name, found) else found

    def key_of(self, external: External) -> tuple[object, ...]:
        """Return what makes the variable one and the same across units."""
        if external.name in self.extra:
            return ("extra", id(self.extra[external.name]))
        if self.is_cell(external):
            return ("cell", id(self.cells[external.name]))
        return ("global", id(self.globals), external.name)


def _is_shells_own(name: str, value: object) -> bool:
    """Return whether a notebook's shell put its own built-in there, as IPython's `open`."""
    if not isinstance(value, types.FunctionType) or not hasattr(builtins, name):
        return False
    return str(value.__globals__.get("__name__")).partition(".")[0] == "IPython"

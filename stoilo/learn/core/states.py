"""What a training goes on from: a table of plain data, and the arrays that it names.

The one way in which anything of a training is kept: numbers and texts stand in the table as
JSON holds them, each array under a name of its own beside it. Whoever has a state says which
of his attributes it is (`Stateful`); what comes back is checked against their types.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

import msgspec
import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.core.tensors import Array, Tensors

# What JSON holds.
Plain: TypeAlias = bool | int | float | str | list["Plain"] | dict[str, "Plain"] | None
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class State:
    """All that somebody needs to go on elsewhere: arrays by name, and plain data."""

    tensors: Tensors
    plain: Mapping[str, Plain]


def render(value: object) -> State:
    """Return a mapping or dataclass, of whatever depth, as a state.

    Arrays stand in the table as their names; numbers that JSON has not, as texts. Tables
    keep their order.
    """
    tensors: dict[str, Array] = {}
    return State(tensors, cast("dict[str, Plain]", _spread(value, "", tensors)))


def _spread(value: object, name: str, tensors: dict[str, Array]) -> Plain:
    if isinstance(value, np.ndarray):
        while name in tensors:  # names hold slashes themselves
            name += "'"
        tensors[name] = value
        return name
    if is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {
            str(key): _spread(one, f"{name}/{key}".lstrip("/"), tensors)
            for key, one in value.items()
        }
    if isinstance(value, AbstractSet):
        value = sorted(value)
    if isinstance(value, list | tuple):
        return [
            _spread(one, f"{name}/{index}", tensors) for index, one in enumerate(value)
        ]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return cast("Plain", value)


def parse(state: State, kind: type[T]) -> T:
    """Return what `render` made `state` of; raises ``STO-T012`` where it is not a `kind`."""

    def find(_: type, name: Any) -> Array:  # noqa: ANN401 - whatever the table holds
        return state.tensors[name]

    try:
        return msgspec.convert(state.plain, kind, strict=False, dec_hook=find)
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
        raise unfit(str(error)[:200]) from None


def join_states(own: State | None = None, **parts: State) -> State:
    """Return several states as one, each under its name, beside what is `own`."""
    tensors = dict(own.tensors) if own else {}
    plain = dict(own.plain) if own else {}
    for part, state in parts.items():
        plain[part] = dict(state.plain)
        tensors |= {f"{part}:{name}": array for name, array in state.tensors.items()}
    return State(tensors, plain)


def select(state: State, part: str) -> State:
    """Return one of the states that `join_states` joined; ``STO-T012`` without it."""
    plain, start = state.plain.get(part), f"{part}:"
    if not isinstance(plain, dict):
        raise unfit(f"it has no {part!r}")
    found = {
        name.removeprefix(start): array
        for name, array in state.tensors.items()
        if name.startswith(start)
    }
    return State(found, plain)


def unfit(reason: str) -> UsageError:
    """Return the error for a state of another method, model or version."""
    return UsageError("STO-T012", f"the saved state does not fit this run: {reason}")


@runtime_checkable
class Keeper(Protocol):
    """Whoever has a state."""

    def save(self) -> State:
        """Return all that it needs to go on; the arrays never change afterwards."""

    def load(self, state: State) -> None:
        """Go on from a saved state."""


class Stateful:
    """Somebody whose state is some of his attributes."""

    # Attribute → its type
    kept: ClassVar[dict[str, Any]] = {}
    # Attributes that have states of their own; what is no `Keeper` has none
    parts: ClassVar[tuple[str, ...]] = ()

    def save(self) -> State:
        """Return the state; orders in flight stay in flight."""
        own = render({name.strip("_"): getattr(self, name) for name in self.kept})
        parts = {name.strip("_"): part.save() for name, part in self._keepers()}
        return join_states(own, **parts)

    def load(self, state: State) -> None:
        """Go on from a saved state; raises ``STO-T012`` when it is of something else."""
        for name, kind in self.kept.items():
            if name.strip("_") not in state.plain:
                raise unfit(f"it has no {name.strip('_')!r}")
            value = cast("Mapping[str, Plain]", state.plain[name.strip("_")])
            setattr(self, name, parse(State(state.tensors, value), kind))
        for name, part in self._keepers():
            part.load(select(state, name.strip("_")))

    def _keepers(self) -> list[tuple[str, Keeper]]:
        found = [(name, getattr(self, name)) for name in self.parts]
        return [(name, part) for name, part in found if isinstance(part, Keeper)]

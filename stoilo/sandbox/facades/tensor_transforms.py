"""`torch.func`: `functional_call` takes names, so it takes those of parameters and buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from stoilo.core.levels import Level
from stoilo.sandbox.language.hooks import unmasked
from stoilo.sandbox.language.refusals import GuardError

__all__ = ["build"]

_Values = Mapping[str, torch.Tensor] | Sequence[Mapping[str, torch.Tensor]]


def _checked(module: torch.nn.Module, values: _Values) -> list[dict[str, torch.Tensor]]:
    """Return `values` as plain dicts whose names are the module's own."""
    tables = [values] if isinstance(values, Mapping) else list(values)
    known = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    known |= {name for name, _ in module.named_buffers(remove_duplicate=False)}
    found: list[dict[str, torch.Tensor]] = []
    for table in tables:
        copied = {**table}  # read once: a mapping of the task's may change its answers
        for name, value in copied.items():
            if type(name) is not str or name not in known:
                raise GuardError("STO-G101", f"{name!r:.64} is no parameter or buffer")
            if not isinstance(value, torch.Tensor):
                raise TypeError("parameters and buffers are tensors")
        found.append(copied)
    return found


def functional_call(
    module: torch.nn.Module,
    parameter_and_buffer_dicts: _Values,
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """``torch.func.functional_call``."""
    return torch.func.functional_call(
        module,
        tuple(_checked(module, parameter_and_buffer_dicts)),
        args,
        None if kwargs is None else unmasked(kwargs),
        tie_weights=tie_weights,
        strict=strict,
    )


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    return {"functional_call": functional_call}

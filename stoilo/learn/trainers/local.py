"""A torch optimiser's class as a volunteer's own optimiser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stoilo.core.errors import UsageError
from stoilo.learn.methods.plans import LocalWork

if TYPE_CHECKING:
    from torch.optim import Optimizer

__all__ = ["read_optimizer"]

_KNOWN = {
    "SGD": {"lr", "momentum", "weight_decay"},
    "Adam": {"lr"},
    "AdamW": {"lr", "weight_decay"},
}
_USUAL_RATE = 1e-3  # of all three in torch


def read_optimizer(kind: type[Optimizer], arguments: Mapping[str, Any]) -> LocalWork:
    """Return the local work that `kind` with these arguments does.

    Adam is AdamW without decay; a decay of Adam's own would be another thing.

    Raises:
        UsageError: ``STO-T080`` for another class or argument.
    """
    name = kind.__name__
    known = (
        _KNOWN.get(name, set()) if kind.__module__.startswith("torch.optim") else set()
    )
    odd = sorted(set(arguments) - known)
    if not known or odd:
        raise UsageError(
            "STO-T080",
            f"volunteers do not train locally by {name}"
            + (f" with {odd[0]}" if known else ""),
            hint="SGD (lr, momentum, weight_decay), Adam (lr), AdamW (lr, weight_decay)",
        )
    rate = float(arguments.get("lr", _USUAL_RATE))
    decay = arguments.get("weight_decay")
    if name == "SGD":
        momentum = float(arguments.get("momentum", 0.0))
        return LocalWork(rate, momentum=momentum, decay=decay)
    return LocalWork(rate, optimizer="adamw", decay=0.0 if name == "Adam" else decay)

"""Library classes whose instances, and those of every class below, take assignment.

By dotted name, since the guards must not import the libraries. Only attributes that the
library checks itself, or that hold no more than what the task put there.
"""

from __future__ import annotations

__all__ = ["may_assign"]

_ANY_DATA = frozenset[str]()

_FAMILIES: dict[str, frozenset[str]] = {
    "logging.Logger": frozenset({"handlers", "level", "propagate"}),
    "numpy.ma.MaskedArray": frozenset({"fill_value", "flat", "mask", "shape"}),
    "numpy.rec.recarray": _ANY_DATA,
    "stoilo.sandbox.facades.tensor_devices.Switches": frozenset(
        {"allow_tf32", "benchmark", "deterministic", "enabled"}
    ),
    "torch.Tensor": frozenset({"data", "grad", "imag", "real", "requires_grad"}),
    "torch.autograd.function.FunctionCtx": _ANY_DATA,
    "torch.nn.modules.module.Module": _ANY_DATA,
}
"""Class → the attributes; an empty set stands for all that are not methods of the class."""

_NEVER = frozenset(
    {"apply", "dirty_tensors", "non_differentiable", "to_save", "saved_for_forward"}
)


def may_assign(mro: tuple[type, ...], name: str) -> bool:
    """Whether instances of the library class with this `mro` take ``x.name = value``.

    Args:
        mro: its method resolution order.
        name: a plain attribute name.
    """
    for base in mro:
        allowed = _FAMILIES.get(f"{base.__module__}.{base.__qualname__}")
        if allowed is not None:
            return name in allowed or (not allowed and _is_data(mro, name))
    return False


def _is_data(mro: tuple[type, ...], name: str) -> bool:
    """Whether no class of `mro` has a method or descriptor called `name`."""
    if name in _NEVER:
        return False
    found = [vars(base)[name] for base in mro if name in vars(base)]
    return not any(callable(value) or hasattr(value, "__get__") for value in found)

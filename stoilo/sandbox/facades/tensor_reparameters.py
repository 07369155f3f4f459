"""`torch.nn.utils`: weight and spectral norm, of parameters that the module has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from stoilo.core.levels import Level
from stoilo.sandbox.language.guards import GuardError
from stoilo.sandbox.language.rules import NameKind, attribute_kind

__all__ = ["build"]

_NAMES = (
    *("remove_spectral_norm", "remove_weight_norm", "spectral_norm", "weight_norm"),
)


def _check(module: Any, name: Any) -> None:
    """Raise unless `name` (untrusted) is a parameter of `module`, normalised or not."""
    if not isinstance(module, nn.Module) or type(name) is not str:
        raise TypeError("a module and the name of one of its parameters, please")
    known = {name, f"{name}_g", f"{name}_orig"}
    own: Any = module._parameters  # noqa: SLF001 - the table that the names lie in
    if attribute_kind(name) is not NameKind.PLAIN or known.isdisjoint(own):
        raise GuardError("STO-G102", f"the module has no parameter {name!r:.64}")


def _checked(real: Callable[..., Any]) -> Callable[..., Any]:
    def apply(module: Any, name: str = "weight", *more: Any, **options: Any) -> Any:
        _check(module, name)
        return real(module, name, *more, **options)

    apply.__name__ = apply.__qualname__ = real.__name__
    apply.__module__ = "torch.nn.utils"
    return apply


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    return {name: _checked(getattr(nn.utils, name)) for name in _NAMES}

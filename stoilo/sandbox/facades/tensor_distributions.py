"""`torch.distributions`: a task's own distribution names its parameters, nothing else.

The library reads every name in ``arg_constraints`` off the distribution and hands what it
finds to a constraint, which may be the task's own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import distributions
from torch.distributions import Distribution

from stoilo.core.levels import Level
from stoilo.sandbox.language.ownership import class_mro, is_own_class
from stoilo.sandbox.language.refusals import GuardError
from stoilo.sandbox.language.rules import NameKind, attribute_kind

__all__ = ["build"]

_start: Any = Distribution.__init__


def _named_parameters(self: Any) -> dict[str, Any]:
    """Return ``arg_constraints``, read once, or raise for a name that is no parameter's."""
    named = {**self.arg_constraints}
    for name in named:
        if type(name) is not str or attribute_kind(name) is not NameKind.PLAIN:
            raise GuardError("STO-G101", f"a parameter cannot be called {name!r:.64}")
    return named


def _checked_start(
    self: Any,
    batch_shape: Any = None,
    event_shape: Any = None,
    validate_args: Any = None,
) -> None:
    """``Distribution.__init__``."""
    shapes = (batch_shape or torch.Size(), event_shape or torch.Size())
    own = any(map(is_own_class, class_mro(type(self))))
    asked = self._validate_args if validate_args is None else validate_args
    if not own or not asked:
        _start(self, *shapes, validate_args)
        return
    _start(self, *shapes, validate_args=False)
    self._validate_args = bool(asked)
    for name, constraint in _named_parameters(self).items():
        _check_parameter(self, name, constraint)


def _check_parameter(self: Any, name: str, constraint: Any) -> None:
    library: Any = distributions.constraints
    if library.is_dependent(constraint):
        return
    lazy = distributions.utils.lazy_property
    if name not in self.__dict__ and isinstance(getattr(type(self), name, None), lazy):
        return
    value = getattr(self, name)
    if not torch.as_tensor(constraint.check(value)).all():
        raise ValueError(
            f"expected parameter {name} of distribution {type(self).__name__} to "
            f"satisfy the constraint {constraint!r}, but found invalid values:\n{value}"
        )


def build(level: Level) -> dict[str, object]:
    """Put the check into the library's class: tasks extend it."""
    del level
    base: Any = Distribution
    base.__init__ = _checked_start
    return {}

"""What a guard says when it says no; below guards and façades, which both say it."""

from __future__ import annotations

from stoilo.core.errors import PolicyRefusal

__all__ = ["GuardError", "kind_name", "refuse_read", "refuse_write"]


class GuardError(PolicyRefusal):
    """A guard said no while the task ran."""


def kind_name(value: object) -> str:
    """Return the class name of `value` (untrusted), bounded."""
    cls = value if isinstance(value, type) else type(value)
    return str.__str__(cls.__name__)[:64]


def refuse_read(value: object, name: str) -> GuardError:
    """Return the refusal of reading ``value.name``."""
    return GuardError(
        "STO-G101",
        f"the attribute {str(name)[:64]!r} of a {kind_name(value)} is out of reach",
        hint="a task sees the public interface of library objects only",
    )


def refuse_write(value: object, name: str) -> GuardError:
    """Return the refusal of assigning or deleting ``value.name``."""
    return GuardError(
        "STO-G102",
        f"the attribute {str(name)[:64]!r} of a {kind_name(value)} cannot be changed",
        hint="a task changes its own objects, not modules or library classes",
    )

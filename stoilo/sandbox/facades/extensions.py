"""Library classes that tasks extend: a subclass keeps the hands off their private names.

A library trusts what its own private methods return; a method of that name in a task's
class would answer for it. Names that the library documents for that are given.
"""

from __future__ import annotations

from typing import Any

from stoilo.sandbox.ownership import class_dict, class_mro, is_own_class, keeps
from stoilo.sandbox.refusals import GuardError

__all__ = ["guard_extension", "refuse_extension"]


def overridden(cls: type, documented: frozenset[str]) -> list[str]:
    """Return the private names of a library base that `cls` or a mixin of it defines."""
    own = [base for base in class_mro(cls) if is_own_class(base)]
    libraries = [base for base in class_mro(cls) if not is_own_class(base)]
    return [
        name
        for base in own
        for name in class_dict(base)
        if name not in documented
        and name.startswith("_")
        and not name.startswith("__")
        and any(keeps(library, name) for library in libraries)
    ]


def guard_extension(library: Any, documented: frozenset[str] = frozenset()) -> None:  # noqa: ANN401 - a class
    """Make every subclass of `library` that a task writes pass the check.

    Args:
        library: a class whose attributes can be set.
        documented: private names meant to be overridden.
    """

    def check(cls: type, /, **options: Any) -> None:  # noqa: ANN401 - passed on
        super(library, cls).__init_subclass__(**options)
        found = overridden(cls, documented) if is_own_class(cls) else []
        if found:
            raise GuardError(
                "STO-G105",
                f"{cls.__name__:.64} cannot define {found[0]!r:.64}: its base keeps that name",
            )

    library.__init_subclass__ = classmethod(check)


def refuse_extension(name: str) -> Any:  # noqa: ANN401 - a classmethod
    """Return an ``__init_subclass__`` for a stand-in that no task may extend."""

    def refuse(cls: type, /, **options: object) -> None:
        del cls, options
        raise GuardError("STO-G105", f"a task cannot extend {name}")

    return classmethod(refuse)

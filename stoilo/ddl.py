"""The name of 2025 for `stoilo.ml`: the same trainers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoilo import ml

if TYPE_CHECKING:
    from stoilo.ml import *  # noqa: F403 - the same names

__all__ = ml.__all__


def __getattr__(name: str) -> object:
    """Return what `stoilo.ml` has under that name."""
    if name not in ml.__all__:
        raise AttributeError(f"module 'stoilo.ddl' has no attribute {name!r}")
    return getattr(ml, name)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(ml.__all__)

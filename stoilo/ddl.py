"""The name of 2025 for `stoilo.ml`: the same trainers."""

from stoilo import ml
from stoilo.ml import *  # noqa: F403 - the same names

__all__ = ml.__all__

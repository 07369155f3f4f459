"""Torchvision for whom its wheel does not fit: models out of it are trained like any other."""

from stoilo.sandbox.libraries.torchvision_import import import_torchvision

__all__ = ["import_torchvision"]

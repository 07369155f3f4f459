"""`torch.cuda` and `torch.backends`: there is one device, and what chooses another is idle.

Research code asks for a graphics card before it takes the processor, seeds it and sets
its switches. It gets the answers of a machine without one; nothing here reaches a driver.
"""

from __future__ import annotations

from typing import Literal

from stoilo.core.levels import Level

__all__ = ["Switches", "build"]


class Switches:
    """Stands for a module such as ``torch.backends.cudnn``: takes settings, does nothing."""

    __slots__ = ("allow_tf32", "benchmark", "deterministic", "enabled")

    def __init__(self) -> None:
        self.allow_tf32 = self.benchmark = self.deterministic = self.enabled = False

    def is_available(self) -> Literal[False]:
        """Return False."""
        return False

    def is_built(self) -> Literal[False]:
        """Return False."""
        return False


def _unavailable() -> Literal[False]:
    return False


def _none() -> Literal[0]:
    return 0


def _idle(*_options: object) -> None:
    """Do nothing, as on a machine without the device."""


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    idle = ("empty_cache", "manual_seed", "manual_seed_all", "synchronize")
    return {
        **dict.fromkeys(("is_available", "is_bf16_supported"), _unavailable),
        **dict.fromkeys(("current_device", "device_count"), _none),
        **dict.fromkeys((*idle, "current_accelerator"), _idle),
        **{name: Switches() for name in ("cudnn", "mkldnn", "mps")},
    }

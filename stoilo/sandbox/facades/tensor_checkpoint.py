"""`torch.utils.checkpoint`: without the debug mode, whose errors quote this host's frames."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.utils.checkpoint

from stoilo.core.levels import Level

__all__ = ["build"]


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool = False,
    debug: bool = False,
    **options: Any,
) -> Any:
    """``torch.utils.checkpoint.checkpoint``; `debug` is ignored."""
    del debug
    return torch.utils.checkpoint.checkpoint(
        function, *args, use_reentrant=use_reentrant, **options
    )


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    return {"checkpoint": checkpoint}

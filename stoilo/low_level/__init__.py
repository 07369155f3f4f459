"""The low-level interface of the thesis (§7.1.2): result types and task options.

``from stoilo.low_level import redundancy, flavors, UserError, SystemError, TaskResult``.
"""

from __future__ import annotations

from stoilo.client.results import SystemError, TaskResult, TimedOut, UserError  # noqa: A004 - the thesis's name
from stoilo.low_level import flavors, redundancy

__all__ = [
    "SystemError",
    "TaskResult",
    "TimedOut",
    "UserError",
    "flavors",
    "redundancy",
]

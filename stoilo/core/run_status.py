"""How one run can end, in words that every part uses (design §7).

Apart from `types`: the zygote loads this and nothing that imports dataclasses.
"""

from __future__ import annotations

from enum import StrEnum


class RunStatus(StrEnum):
    """How one run ended (design §7, outcomes of `sandbox`)."""

    OK = "ok"
    REFUSED = "refused"
    USER_ERROR = "user_error"
    KILLED = "killed"


class RunLayer(StrEnum):
    """Which layer decided the outcome."""

    GATE = "gate"
    LANGUAGE = "language"
    KERNEL = "kernel"
    LIMITS = "limits"
    RESULT = "result"

"""The one error tree: families by whose fault it is, every error with a stable code.

    StoiloError
    ├── UsageError        the caller asked for something that makes no sense      exit 2
    ├── PolicyRefusal     a policy, level or opt-in says no                       exit 3
    ├── TrustError        a signature, proof, digest or format does not hold      exit 4
    ├── UserCodeError     the researcher's own function failed                    exit 5
    ├── WaitError         a client gave up waiting; the work may still finish     exit 6
    ├── UnreachableError  the other side could not be reached                     exit 7
    ├── DeniedError       authenticated, but not permitted (or not found)         exit 8
    └── InternalError     our fault: a bug, a full disk, a missing package        exit 1

Codes look like ``STO-<area letter><three digits>``. Each area's codes live, with title,
explanation and advice, in ``stoilo/core/codes/<letter>.toml`` (see `stoilo.core.codebook`).
Bytes from outside never end in a built-in exception: parsers raise one of these.
"""

from __future__ import annotations

from typing import ClassVar


class StoiloError(Exception):
    """Root of everything stoilo raises on purpose.

    Attributes:
        code: stable identifier, for example ``STO-D002``; `stoilo explain` knows it.
        message: what happened, in one sentence, free of secrets and host paths.
        hint: what to do next; empty when the code's own page says it all.
    """

    family: ClassVar[str] = "internal"
    exit_code: ClassVar[int] = 1

    def __init__(self, code: str, message: str, *, hint: str = "") -> None:
        super().__init__(code, message, hint)
        self.code = code
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """Return ``message [code]`` followed by the hint, if any."""
        text = f"{self.message} [{self.code}]"
        return f"{text}: {self.hint}" if self.hint else text


class UsageError(StoiloError):
    """The caller's request is malformed or inconsistent."""

    family = "usage"
    exit_code = 2


class PolicyRefusal(StoiloError):
    """A policy, level or opt-in does not allow this."""

    family = "policy"
    exit_code = 3


class TrustError(StoiloError):
    """Something that had to verify did not; nothing was done."""

    family = "trust"
    exit_code = 4


class UserCodeError(StoiloError):
    """The researcher's code failed by itself."""

    family = "user"
    exit_code = 5


class WaitError(StoiloError):
    """The caller stopped waiting; the work goes on elsewhere."""

    family = "wait"
    exit_code = 6


class UnreachableError(StoiloError):
    """The other side did not answer."""

    family = "unreachable"
    exit_code = 7


class DeniedError(StoiloError):
    """The caller is known but may not do this, or the thing is not theirs."""

    family = "denied"
    exit_code = 8


class InternalError(StoiloError):
    """Our own fault or our machine's: a bug, a full disk, a missing mechanism."""

    family = "internal"
    exit_code = 1


# Foreign text on a terminal: what a task or volunteer wrote must not command it ---------

_KEPT = frozenset("\n\t")


def show_plainly(text: str) -> str:
    """Return untrusted `text` with control and invisible characters spelled out."""
    if text.isprintable():
        return text
    return "".join(
        char if char in _KEPT or char.isprintable() else ascii(char)[1:-1]
        for char in text
    )

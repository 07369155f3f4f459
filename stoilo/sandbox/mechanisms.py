"""The mandatory mechanisms of the kernel layer and how their presence is found out.

The probe of the host is an argument of the zygote, so that a test can take one mechanism
away; nothing on a command line or in the environment reaches it.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

__all__ = ["Host", "KernelHost", "Mechanism", "MechanismError", "find_missing"]


class Mechanism(StrEnum):
    """What every jailed child has, or no run takes place (design §5)."""

    LINUX = "linux"
    NO_NEW_PRIVS = "no_new_privs"
    SECCOMP = "seccomp"
    LANDLOCK = "landlock"
    RLIMITS = "rlimits"
    DESCRIPTORS = "closed_descriptors"
    IDENTITY = "non_root_uid"
    UNDUMPABLE = "not_dumpable"
    SESSION = "own_session"
    PARENT_DEATH = "parent_death_signal"


class MechanismError(Exception):
    """A mandatory mechanism could not be applied; its name is the only argument."""


class Host(Protocol):
    """Answers whether this machine has a mechanism."""

    def has(self, mechanism: Mechanism) -> bool:
        """Return whether `mechanism` works here."""
        ...


class KernelHost:
    """The running kernel, asked without changing anything."""

    def has(self, mechanism: Mechanism) -> bool:
        """Ask the kernel; what cannot be asked is found out when it is applied."""
        if not sys.platform.startswith("linux"):
            return False
        from stoilo.sandbox import (  # noqa: PLC0415 - Linux only
            identity,
            landlock,
            libc,
            seccomp,
        )

        ask: Callable[[], bool] | None = {
            Mechanism.SECCOMP: seccomp.is_available,
            Mechanism.LANDLOCK: lambda: landlock.detect_abi() > 0,
            Mechanism.NO_NEW_PRIVS: lambda: libc.answers_prctl(
                libc.PR_GET_NO_NEW_PRIVS
            ),
            Mechanism.IDENTITY: lambda: not identity.is_root_outside(),
            Mechanism.RLIMITS: lambda: hasattr(resource, "RLIMIT_AS"),
            Mechanism.DESCRIPTORS: lambda: hasattr(os, "pidfd_open"),
        }.get(mechanism)
        return ask is None or ask()


def find_missing(host: Host) -> tuple[Mechanism, ...]:
    """Return the mandatory mechanisms that `host` lacks, in order."""
    return tuple(mechanism for mechanism in Mechanism if not host.has(mechanism))

"""The mandatory mechanisms: whether this host has them, Landlock and the resource limits.

The probe of the host is an argument of the zygote, so that a test can take one mechanism
away; nothing on a command line or in the environment reaches it.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from stoilo.core.limits import RunLimits
from stoilo.sandbox.kernel import identity, libc, seccomp
from stoilo.sandbox.kernel.libc import raw_syscall


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

        ask: Callable[[], bool] | None = {
            Mechanism.SECCOMP: seccomp.is_available,
            Mechanism.LANDLOCK: lambda: detect_abi() > 0,
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


# These three numbers are the same on every architecture.
# Landlock with nothing allowed: no file, no TCP, no signal out of the domain ----------
#
# A ruleset without rules denies every right that it handles, so it handles every right that
# the running kernel's ABI knows. Source: linux/landlock.h and the kernel's userspace-api
# page. It complements seccomp; stat(2), chmod(2) and UDP stay outside its reach.


_CREATE_RULESET, _RESTRICT_SELF = 444, 446
_CREATE_RULESET_VERSION = 1

# ABI → how many file-system rights exist (bits from 0).
_FS_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_NET_RIGHTS = 0b11  # bind and connect TCP, ABI ≥ 4
_SCOPES = 0b11  # abstract unix sockets and signals, ABI ≥ 6
_NET_ABI, _SCOPE_ABI = 4, 6


class _RulesetAttr(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


def detect_abi() -> int:
    """Return the kernel's Landlock ABI version, 0 when there is none."""
    try:
        return raw_syscall(
            _CREATE_RULESET, ctypes.c_void_p(None), 0, _CREATE_RULESET_VERSION
        )
    except OSError:
        return 0


def create_empty_ruleset(abi: int, call: Callable[..., int] = raw_syscall) -> int:
    """Return a descriptor of a ruleset that handles all that `abi` can and allows none.

    Args:
        abi: as `detect_abi` gave it; a newer one than we know is used like the last known.
        call: a system call by number; a test passes a kernel of its own.

    Raises:
        OSError: the kernel has no Landlock or it is switched off.
    """
    attr = _RulesetAttr(handled_access_fs=(1 << _FS_RIGHTS.get(abi, 16)) - 1)
    size = 8
    if abi >= _NET_ABI:
        attr.handled_access_net, size = _NET_RIGHTS, 16
    if abi >= _SCOPE_ABI:
        attr.scoped, size = _SCOPES, 24
    pointer = ctypes.cast(ctypes.pointer(attr), ctypes.c_void_p)
    return call(_CREATE_RULESET, pointer, size, 0)


def restrict_self(ruleset: int) -> None:
    """Close the calling thread into `ruleset`; needs no_new_privs; cannot be undone."""
    raw_syscall(_RESTRICT_SELF, ruleset, 0)


# Resource limits of the jailed child, from `RunLimits` --------------------------------


PAGE = resource.getpagesize()


def read_address_space(statm: int) -> int:
    """Return the mapped bytes of the process whose ``/proc/…/statm`` is open at `statm`."""
    return int(os.pread(statm, 64, 0).split()[0]) * PAGE


def apply_limits(
    limits: RunLimits, *, base_bytes: int, descriptors: int, processes: int | None
) -> None:
    """Set every limit, hard equal to soft, on the calling process.

    Processor time alone has a second between them: SIGXCPU names the limit, and SIGKILL
    follows for a process that ignores it.

    Args:
        limits: what the run may use; memory counts above `base_bytes`.
        base_bytes: address space that the warm zygote already holds.
        descriptors: one more than the highest descriptor that may exist.
        processes: threads and processes of the uid, None to leave it as it is (only
            where the uid is shared with others; seccomp then bounds alone).
    """
    table = {
        resource.RLIMIT_CPU: limits.cpu_s,
        resource.RLIMIT_AS: base_bytes + limits.memory_bytes,
        resource.RLIMIT_NOFILE: descriptors,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: 16,
        resource.RLIMIT_NICE: 0,
        resource.RLIMIT_RTPRIO: 0,
    }
    if processes is not None:
        table[resource.RLIMIT_NPROC] = processes
    for name, value in table.items():
        _, hard = resource.getrlimit(name)
        lower = value if hard == resource.RLIM_INFINITY else min(value, hard)
        roomy = hard == resource.RLIM_INFINITY or hard > lower
        margin = int(name == resource.RLIMIT_CPU and roomy)
        resource.setrlimit(name, (lower, lower + margin))

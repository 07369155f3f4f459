"""Landlock with nothing allowed: no file, no TCP, no signal out of the domain.

A ruleset without rules denies every right that it handles, so it handles every right that
the running kernel's ABI knows. Source: linux/landlock.h and the kernel's userspace-api
page. It complements seccomp; stat(2), chmod(2) and UDP stay outside its reach.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from stoilo.sandbox.libc import raw_syscall

__all__ = ["create_empty_ruleset", "detect_abi", "restrict_self"]

# These three numbers are the same on every architecture.
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

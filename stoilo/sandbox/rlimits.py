"""Resource limits of the jailed child, from `RunLimits`."""

from __future__ import annotations

import os
import resource

from stoilo.core.limits import RunLimits

__all__ = ["apply_limits", "read_address_space"]

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

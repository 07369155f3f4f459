"""What this computer tells a project of itself: BOINC's ``host_info``.

Processor, its measured speed, memory, disk and system; no name, address or list of
devices, since no project of ours needs them. Everything is read from the system's own
files, bounded, and what is not there is not said.
"""

from __future__ import annotations

import math
import os
import platform
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from stoilo.core.boinc.messages import HostInfo

COORDINATES: Final = 20_000
OPERATIONS: Final = 20
"""Of one coordinate in `math.dist`: difference, scaling, a compensated square and sum."""

ROUNDS: Final = 10
SLOWEST: Final = 1e6
FASTEST: Final = 1e12


def measure_fpops(clock: Callable[[], float] = time.perf_counter) -> float:
    """Return floating-point operations a second of one processor; takes some ms.

    The best of some rounds: what disturbs a round only makes it slower.

    Args:
        clock: s; one that stands still gives the fastest believed.
    """
    point = [number / COORDINATES for number in range(COORDINATES)]
    other = point[::-1]
    best = math.inf
    for _ in range(ROUNDS):
        began = clock()
        math.dist(point, other)
        best = min(best, clock() - began)
    fpops = COORDINATES * OPERATIONS / best if best > 0 else FASTEST
    return min(max(fpops, SLOWEST), FASTEST)


MAX_BYTES: Final = 256 * 1024
FIELD_CHARS: Final = 200
FEATURES_CHARS: Final = 2048
_FIELD = re.compile(r"^([a-z_ ]{1,32}?)\s*:[ \t]*(.*)$", re.MULTILINE)


def describe_host(data: Path) -> HostInfo:
    """Return what is said of this computer; its speed is measured, which takes some ms.

    `data`: where the volunteer keeps its files.
    """
    vendor, model, features = parse_processor(_read(Path("/proc/cpuinfo")))
    name, version = _system()
    return HostInfo(
        vendor=vendor,
        model=model,
        features=features,
        fpops=measure_fpops(),
        memory_bytes=float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")),
        disk_free_bytes=free_bytes(data),
        os_name=f"Linux {name}".strip(),
        os_version=f"{version} [{platform.release()[:64]}]".strip(),
    )


def parse_processor(text: str) -> tuple[str, str, str]:
    """Return vendor, model and features of the first processor of ``/proc/cpuinfo``.

    The model ends in family, model and stepping, as BOINC writes it: projects compare
    hosts by it.
    """
    first = text.strip().split("\n\n", 1)[0]
    fields = dict(_FIELD.findall(first))
    numbers = [fields.get(key, "") for key in ("cpu family", "model", "stepping")]
    model = fields.get("model name", "")
    if all(numbers):
        family, number, stepping = numbers
        model += f" [Family {family} Model {number} Stepping {stepping}]"
    return (
        fields.get("vendor_id", "")[:FIELD_CHARS].strip(),
        model[:FIELD_CHARS].strip(),
        fields.get("flags", "")[:FEATURES_CHARS].strip(),
    )


def _system() -> tuple[str, str]:
    """Return short name and full name of the system; empty when it does not say."""
    try:
        fields = platform.freedesktop_os_release()
    except OSError:
        return "", ""
    name = fields.get("NAME", "").removesuffix("GNU/Linux").strip()
    return name[:FIELD_CHARS], fields.get("PRETTY_NAME", "")[:FIELD_CHARS]


def free_bytes(data: Path) -> float:
    """Return the free space where `data` lies, bytes; 0 when not known."""
    try:
        disk = os.statvfs(data)
    except OSError:
        return 0.0
    return float(disk.f_bavail * disk.f_frsize)


def _read(path: Path) -> str:
    """Return the beginning of a system file, empty without one."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""

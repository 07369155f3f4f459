"""What a zygote is started with: where its libraries lie, and one set of instructions.

numpy, torch, OpenBLAS and MKL choose code by processor at start: with AVX-512 the last
digits of ``exp``, ``log``, ``tanh``, ``power``, ``@`` and ``inv`` differ from those with AVX2.
Every x86-64 host since 2013 to 2015 has AVX2 and FMA, so that is what all of them use.
"""

from __future__ import annotations

import functools
import platform
import site
from pathlib import Path

_NEEDED = frozenset({"avx2", "fma", "bmi1", "bmi2"})
_PINNED = {
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    "OPENBLAS_CORETYPE": "Haswell",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "AVX2",
}


@functools.cache
def read_processor_flags() -> frozenset[str]:
    """Return what this host's first processor can do, empty where Linux does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return frozenset()
    flags = (line.partition(":")[2] for line in lines if line.startswith("flags"))
    return frozenset(next(flags, "").split())


def pin_instructions(
    machine: str | None = None, flags: frozenset[str] | None = None
) -> dict[str, str]:
    """Return the environment variables that choose the common instructions.

    Empty on other architectures and on older processors, where the libraries' own
    choice is the only one that runs: their results may differ in the last digits.
    """
    machine = platform.machine() if machine is None else machine
    flags = read_processor_flags() if flags is None else flags
    return dict(_PINNED) if machine == "x86_64" and flags >= _NEEDED else {}


# Where a zygote finds its libraries, said by the supervisor instead of looked for -----
#
# The interpreter's own search (the module `site`) reads every ``.pth`` file, runs what they
# hold and what a distribution put into ``sitecustomize``: 3 ms of every cold start, and code
# that nobody listed.


@functools.cache
def library_folders() -> tuple[str, ...]:
    """Return the absolute folders of installed libraries and of stoilo itself.

    Never the user's own site folder, the current folder or one of ``PYTHONPATH``.
    """
    own = str(Path(__file__).resolve().parents[3])
    return tuple(dict.fromkeys((*site.getsitepackages(), own)))

"""Honest copies on other processors: the same instructions, the same last digits."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from stoilo.sandbox.process.supervisor import (
    pin_instructions,
    read_processor_flags,
    zygote_environment,
)

AVX2 = frozenset({"avx2", "fma", "bmi1", "bmi2"})


def test_processor_with_more_is_pinned_to_what_all_have():
    assert pin_instructions("x86_64", AVX2 | {"avx512f"}) == pin_instructions(
        "x86_64", AVX2
    )


@pytest.mark.parametrize(
    ("machine", "flags"), [("aarch64", AVX2), ("x86_64", AVX2 - {"avx2"})]
)
def test_other_processors_are_left_alone(machine, flags):
    assert pin_instructions(machine, flags) == {}


@pytest.mark.skipif(
    platform.machine() != "x86_64" or not read_processor_flags() >= AVX2,
    reason="this processor has not the common instructions",
)
def test_numpy_of_a_zygote_uses_no_avx512():
    numpy = pytest.importorskip("numpy")
    del numpy
    script = (
        "from numpy._core._multiarray_umath import __cpu_features__ as found;"
        "print([name for name in found if found[name] and 'X86_V4' in name])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=zygote_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


LARGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
COUNT_FAULTS = (
    "import resource; one = bytearray(1 << 26);"
    "print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)"
)


def count_faults(environment):
    """Return the page faults of a process that fills 64 MiB."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", COUNT_FAULTS],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


@pytest.mark.skipif(
    not LARGE_PAGES.exists() or "[madvise]" not in LARGE_PAGES.read_text(),
    reason="this kernel gives no large pages to those who ask",
)
@pytest.mark.skipif(
    tuple(map(int, (platform.libc_ver()[1] or "0").split("."))) < (2, 35),
    reason="this C library cannot ask for large pages",
)
def test_arrays_of_a_zygote_lie_in_large_pages():
    plain = zygote_environment()
    del plain["GLIBC_TUNABLES"]
    assert count_faults(plain) > (1 << 26) // 4096
    assert count_faults(zygote_environment()) < (1 << 26) // 4096 // 4

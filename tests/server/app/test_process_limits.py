from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from stoilo.server.app.run import (
    OPEN_FILES,
    settle_collector,
)

PROGRAM = """
import os, sys
from stoilo.server.app.run import (
    OPEN_FILES,
    give_large_blocks_back,
    settle_collector,
)

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

if sys.argv[1] == "told":
    assert give_large_blocks_back()
large = b"x" * (30 << 20)
del large
before, blocks, pins = resident(), [], []
for _ in range(16):
    blocks.append(b"x" * (8 << 20))
    pins.append(b"x" * 100_000)
del blocks
print((resident() - before) >> 20)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
@pytest.mark.parametrize("told", [True, False])
def test_large_blocks_between_small_ones_are_given_back(told: bool) -> None:
    word = "told" if told else "untold"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, word], check=True, capture_output=True
    )
    assert (int(done.stdout) < 16) is told


def test_collector_leaves_out_what_a_start_has_made() -> None:
    started = [[] for _ in range(1000)]  # type: ignore[var-annotated]  # nothing in them
    try:
        settle_collector()
        assert not any(one is started for one in gc.get_objects())
    finally:
        gc.unfreeze()
    assert any(one is started for one in gc.get_objects())


@pytest.mark.parametrize(("hard", "soft"), [(4096, 4096), (20_000, OPEN_FILES)])
def test_process_may_have_as_many_files_as_connections_need(hard, soft):
    program = (
        "import resource as r; "
        f"r.setrlimit(r.RLIMIT_NOFILE, (256, {hard})); "
        "from stoilo.server.app.run import allow_open_files; allow_open_files(); "
        "print(r.getrlimit(r.RLIMIT_NOFILE)[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True
    )
    assert int(done.stdout) == soft

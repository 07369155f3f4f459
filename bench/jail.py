"""The jail against a plain interpreter and bubblewrap: one warm run, one cold numpy run.

Each measurement is of the whole way, from the order to the checked answer. bubblewrap
stands for what a careful user would otherwise write: a fresh interpreter in new namespaces,
with a read-only view of the machine, and neither guards nor a system call filter.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable

from bench.rows import Row, interleaved_medians
from stoilo.core.codec import skeleton
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.channel import TASK_JOB, TaskRequest
from stoilo.sandbox.process.run import run_source, run_task
from stoilo.sandbox.process.supervisor import Jail

PURE = "def add(kwargs):\n    return kwargs['a'] + kwargs['b']\n"
NUMERIC = """import numpy as np

def total(kwargs):
    return float(np.arange(kwargs['n'], dtype=np.float64).sum())
"""
BUBBLEWRAP = (
    "bwrap --ro-bind / / --dev /dev --proc /proc --unshare-all --die-with-parent"
)
WARM, COLD = 0.6, 1.25


def _interpreter(program: str, *before: str) -> Callable[[], None]:
    def run() -> None:
        subprocess.run([*before, sys.executable, "-c", program], check=True)

    return run


def _peers(program: str) -> dict[str, Callable[[], None]]:
    """Return plain CPython and, where it is installed and may run, bubblewrap."""
    plain = {f"python -c '{program}'": _interpreter(program)}
    words = BUBBLEWRAP.split()
    if shutil.which(words[0]) is None:
        return plain
    if subprocess.run([*words, "true"], check=False, capture_output=True).returncode:
        return plain
    return {**plain, f"bwrap python -c '{program}'": _interpreter(program, *words)}


def _check_warm(jail: Jail) -> None:
    request = TaskRequest(PURE, "add", skeleton.encode({"a": 2, "b": 3}))
    outcome = run_task(jail, request, load_level("pure").default_limits())
    assert outcome.value == skeleton.encode(5), outcome


def _check_cold() -> None:
    outcome = run_source(NUMERIC, "total", {"n": 1000}, load_level("numeric"))
    assert outcome.value == skeleton.encode(499500.0), outcome


def _compare(
    name: str, ours: Callable[[], None], program: str, runs: int, reach: float
) -> list[Row]:
    """Return a row for each peer; the target is against plain CPython."""
    peers = _peers(program)
    medians = interleaved_medians({"ours": ours, **peers}, runs)
    return [
        Row(
            name=name,
            ours=medians["ours"] * 1e3,
            unit="ms",
            peer_name=peer,
            peer=medians[peer] * 1e3,
            ratio=medians["ours"] / medians[peer],
            ratio_of="of the peer's time",
            target="" if turn else f"≤ {reach}",
            met=None if turn else medians["ours"] / medians[peer] <= reach,
        )
        for turn, peer in enumerate(peers)
    ]


def measure(warm_runs: int = 60, cold_runs: int = 25) -> list[Row]:
    """Return the rows; full jail, both layers, every guard on."""
    with Jail(load_level("pure"), TASK_JOB) as jail:
        warm = _compare(
            "one small pure task, warm zygote",
            lambda: _check_warm(jail),
            "pass",
            warm_runs,
            WARM,
        )
    cold = "one numpy task, cold zygote"
    return warm + _compare(cold, _check_cold, "import numpy", cold_runs, COLD)

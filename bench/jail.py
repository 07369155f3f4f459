"""The jail against a plain interpreter: one warm pure run, one cold numpy run."""

from __future__ import annotations

import subprocess
import sys

from bench.rows import Row, paired_seconds
from stoilo.core import skeleton
from stoilo.policies.levels import load_level
from stoilo.sandbox.run import TASK_JOB, TaskRequest, run_task
from stoilo.sandbox.supervisor import Jail

PURE = "def add(kwargs):\n    return kwargs['a'] + kwargs['b']\n"
NUMERIC = """import numpy as np

def total(kwargs):
    return float(np.arange(kwargs['n'], dtype=np.float64).sum())
"""


def _interpreter(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True)


def _check_warm(jail: Jail) -> None:
    request = TaskRequest(PURE, "add", skeleton.encode({"a": 2, "b": 3}))
    outcome = run_task(jail, request, load_level("pure").default_limits())
    assert outcome.value == skeleton.encode(5), outcome


def _check_cold() -> None:
    level = load_level("numeric")
    request = TaskRequest(NUMERIC, "total", skeleton.encode({"n": 1000}))
    with Jail(level, TASK_JOB) as jail:
        outcome = run_task(jail, request, level.default_limits())
    assert outcome.value == skeleton.encode(499500.0), outcome


def _make_row(name: str, peer: str, pair: tuple[float, float], reach: float) -> Row:
    ours, theirs = (seconds * 1000 for seconds in pair)
    return Row(
        name=name,
        ours=ours,
        unit="ms",
        peer_name=f"python -c '{peer}'",
        peer=theirs,
        ratio=ours / theirs,
        ratio_of="of the peer's time",
        target=f"≤ {reach}",
        met=ours / theirs <= reach,
    )


def measure(warm_runs: int = 60, cold_runs: int = 15) -> list[Row]:
    """Return both rows; full jail, both layers, every guard on."""
    with Jail(load_level("pure"), TASK_JOB) as jail:
        warm = paired_seconds(
            lambda: _check_warm(jail), lambda: _interpreter("pass"), runs=warm_runs
        )
    cold = paired_seconds(
        _check_cold, lambda: _interpreter("import numpy"), runs=cold_runs
    )
    return [
        _make_row("one small pure task, warm zygote", "pass", warm, 0.6),
        _make_row("one numpy task, cold zygote", "import numpy", cold, 1.25),
    ]
